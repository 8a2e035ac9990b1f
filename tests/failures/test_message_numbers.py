"""For any consistent numbers in any wording, the numbers are read and the derived sentence is right."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomph.failures import FailureKind, Finding, read_log
from oomph.failures._message_numbers import read_numbers
from oomph.units import GIB, KIB, MIB, TIB, format_size

ROUNDING = 0.02 * GIB  # messages round to two digits after the point


@dataclass(frozen=True)
class Use:
    """A consistent state of a GPU, in GiB, in which a request failed."""

    total: float
    allocated: float
    unallocated: float
    others: float
    free: float
    requested: float

    @property
    def reserved(self) -> float:
        return self.allocated + self.unallocated


@st.composite
def uses(draw: st.DrawFn) -> Use:
    total = draw(st.sampled_from([6.0, 8.0, 10.75, 15.77, 23.69, 39.39, 79.15]))
    shares = [draw(st.integers(1, 100)) for _ in range(4)]
    allocated, unallocated, others, free = (round(total * share / sum(shares), 2) for share in shares)
    return Use(total, allocated, unallocated, others, free, round(free + draw(st.integers(1, 200)) / 100, 2))


def torch_1_3(use: Use) -> str:
    return (
        f"RuntimeError: CUDA out of memory. Tried to allocate {use.requested:.2f} GiB (GPU 0; {use.total:.2f} GiB "
        f"total capacity; {use.allocated:.2f} GiB already allocated; {use.free:.2f} GiB free; "
        f"{use.unallocated:.2f} GiB cached)"
    )


def torch_2_0(use: Use) -> str:
    return (
        f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {use.requested:.2f} GiB (GPU 0; "
        f"{use.total:.2f} GiB total capacity; {use.allocated:.2f} GiB already allocated; {use.free:.2f} GiB free; "
        f"{use.reserved:.2f} GiB reserved in total by PyTorch)"
    )


def torch_2_6(use: Use) -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {use.requested:.2f} GiB. GPU 0 has a total "
        f"capacity of {use.total:.2f} GiB of which {use.free:.2f} GiB is free. Of the allocated memory "
        f"{use.allocated:.2f} GiB is allocated by PyTorch, and {use.unallocated:.2f} GiB is reserved by PyTorch but "
        "unallocated."
    )


def rocm(use: Use) -> str:
    return torch_2_6(use).replace("CUDA", "HIP")


WORDINGS = (torch_1_3, torch_2_0, torch_2_6, rocm)


def only_finding(text: str) -> Finding:
    (finding,) = read_log(text)
    return finding


@pytest.mark.parametrize("wording", WORDINGS)
@given(use=uses())
def test_numbers_of_every_wording_are_read(wording: object, use: Use) -> None:
    assert callable(wording)
    numbers = read_numbers(wording(use))
    for name, value in (("requested", use.requested), ("capacity", use.total), ("free", use.free)):
        assert getattr(numbers, name) == pytest.approx(value * GIB, abs=ROUNDING), name
    assert numbers.allocated == pytest.approx(use.allocated * GIB, abs=ROUNDING)
    assert numbers.reserved == pytest.approx(use.reserved * GIB, abs=2 * ROUNDING)
    assert numbers.unallocated == pytest.approx(use.unallocated * GIB, abs=2 * ROUNDING)
    assert numbers.held_by_others == pytest.approx(use.others * GIB, abs=5 * ROUNDING)


@pytest.mark.parametrize("wording", WORDINGS)
@given(use=uses())
def test_memory_of_others_is_derived_and_comes_first(wording: object, use: Use) -> None:
    assert callable(wording)
    finding = only_finding(wording(use))
    if finding.kind is FailureKind.IMPOSSIBLE_SIZE:
        return
    held = read_numbers(wording(use)).held_by_others
    assert held is not None
    sentence = f"{format_size(held)} of the GPU is used by other processes."
    is_much = use.others > max(1.7, use.total * 0.1)
    is_little = use.others < min(0.8, use.total * 0.06)
    if is_much:
        assert sentence in finding.details
        first = finding.advice[0] if use.requested <= use.total else finding.advice[1]
        assert "processes on the GPU" in first.text
    if is_little:
        assert not any("used by" in line for line in finding.details)
        assert "processes on the GPU" not in finding.advice[0].text


@given(use=uses(), gap=st.integers(2, 40))
def test_more_free_than_requested_is_a_cap_with_its_size(use: Use, gap: int) -> None:
    total = use.total + gap + 5
    capped = Use(total, use.allocated, 0, 0, round(use.requested + gap + total * 0.06, 2), use.requested)
    finding = only_finding(torch_2_0(capped))
    numbers = read_numbers(torch_2_0(capped))
    assert numbers.free is not None
    assert numbers.requested is not None
    sizes = f"{format_size(numbers.free)} was free and {format_size(numbers.requested)} was requested"
    assert any("More memory was free" in line and sizes in line for line in finding.details)
    assert not any("used by other processes" in line for line in finding.details)


@given(size=st.integers(201, 10**6))
def test_request_larger_than_any_gpu_is_a_wrong_shape(size: int) -> None:
    finding = only_finding(f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}.00 GiB.")
    assert finding.kind is FailureKind.IMPOSSIBLE_SIZE
    assert f"The program requested {format_size(size * GIB)} in one block." in finding.details
    assert "shape" in finding.advice[0].text


@given(side=st.integers(400_000, 10**7))
def test_array_larger_than_ram_shows_its_shape(side: int) -> None:
    size = side * side * 8 / TIB
    array = f"an array with shape ({side}, {side}) and data type float64"
    text = f"numpy.exceptions._ArrayMemoryError: Unable to allocate {size:.2f} TiB for {array}"
    finding = only_finding(text)
    assert finding.kind is FailureKind.IMPOSSIBLE_SIZE
    assert finding.resource.value == "ram"
    assert f"shape ({side}, {side}) of float64" in finding.details[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                "Allocation on device 0 would exceed allowed memory. (out of memory)\n"
                "Currently allocated     : 13.21 GiB\nRequested     : 2.00 GiB\nDevice limit  : 15.77 GiB\n"
                "Free (according to CUDA): 19.44 MiB\n"
                "PyTorch limit (set by user-supplied memory fraction)\n  : 17179869184.00 GiB"
            ),
            {"allocated": 13.21 * GIB, "requested": 2 * GIB, "capacity": 15.77 * GIB, "free": 19.44 * MIB},
        ),
        (
            (
                "Out of memory error on GPU 0. Cannot allocate 1.2GB memory on GPU 0, 10.5GB memory has been allocated "
                "and available memory is only 300MB."
            ),
            {"requested": 1.2 * GIB, "allocated": 10.5 * GIB, "free": 300 * MIB, "device": 0},
        ),
        (
            (
                "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.20GiB (rounded to 2362232064)\n"
                "Limit:        9894756352\nInUse:                      9290022400"
            ),
            {"requested": 2.2 * GIB, "allowed": 9894756352, "allocated": 9290022400},
        ),
        ("OOM when allocating tensor with shape[64,512,112] and type half on GPU:0", {"requested": 64 * 512 * 112 * 2}),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.", {"requested": 16 * GIB}),
        (
            "XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 15.11 GiB.",
            {"requested": 4 * GIB},
        ),
        (
            (
                "MPS backend out of memory (MPS allocated: 8.80 GB, other allocations: 1.50 GB, max allowed: 9.07 GB). "
                "Tried to allocate 500.00 MB on private pool."
            ),
            {"allocated": 8.8 * GIB, "other_allocations": 1.5 * GIB, "allowed": 9.07 * GIB, "requested": 500 * MIB},
        ),
        (
            "Free memory on device (3.2/23.5 GiB) on startup is less than desired GPU memory utilization",
            {"free": 3.2 * GIB, "capacity": 23.5 * GIB, "reserved": 0},
        ),
        (
            (
                "(16.00 GiB KV cache is needed, which is larger than the available KV cache memory (5.52 GiB). Based "
                "on the available memory, the estimated maximum model length is 45216."
            ),
            {"requested": 16 * GIB, "free": 5.52 * GIB, "max_tokens": 45216},
        ),
        ("Killed process 4711 (python) total-vm:987kB, anon-rss:62345678kB", {"rss": 62345678 * KIB, "pid": 4711}),
        ("Job 8 exceeded memory limit (68123456 > 67108864)", {"used": 68123456 * KIB, "limit": 64 * GIB}),
        ("    Limits:\n      cpu:     4\n      memory:  16Gi", {"limit": 16 * GIB}),
        ("PBS: job killed: mem 67109888kb exceeded limit 67108864kb", {"used": 67109888 * KIB, "limit": 64 * GIB}),
        (
            "Memory on the node where the task (pid=9) was running was 59.32GB / 62.50GB (0.949)",
            {"used": 59.32 * GIB, "limit": 62.5 * GIB},
        ),
    ],
)
def test_other_wordings_are_read(text: str, expected: dict[str, float]) -> None:
    numbers = read_numbers(text).as_dict()
    assert {name: numbers.get(name) for name in expected} == pytest.approx(expected)


def test_no_cap_is_read_from_an_unset_fraction() -> None:
    text = (
        "Device limit            : 15.77 GiB\nPyTorch limit (set by user-supplied memory fraction) : 17179869184.00 GiB"
    )
    assert read_numbers(text).allowed is None


def test_ram_use_is_read_from_the_lines_above() -> None:
    above = (
        "CPU Virtual Memory:  used = 12.0 GB, percent = 20.0%\nCPU Virtual Memory:  used = 493.18 GB, percent = 97.9%"
    )
    assert read_numbers("exits with return code = -9", above).ram_percent == 97.9


@given(st.text(max_size=300))
def test_any_text_has_numbers_or_none(text: str) -> None:
    numbers = read_numbers(f"Tried to allocate {text} GiB, total capacity of {text}").as_dict()
    assert all(value >= 0 for value in numbers.values())
