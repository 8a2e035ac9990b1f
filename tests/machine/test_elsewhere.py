"""macOS and Windows, from recorded values: these systems are not run by our tests."""

from __future__ import annotations

import ctypes

from oomph.machine import Load, Machine, judge
from oomph.machine._fact import Fact, Unknown, unknown
from oomph.machine._machine import compose, machine_document
from oomph.machine._macos import MacMemory, ask_macos, read_macos_memory
from oomph.machine._surroundings import surroundings_elsewhere
from oomph.machine._volume import Volume
from oomph.machine._windows import (
    PerformanceInfo,
    _Structure,
    from_structure,
    page_file_used,
    read_windows_memory,
)
from oomph.units import GIB, MIB

from .recordings import NO_DRIVER, software

DISK = Volume(
    path="C:\\runs",
    total=Fact(900 * GIB, "psutil"),
    free=Fact(300 * GIB, "psutil"),
    rotational=unknown("not read here", "psutil"),
    writable=unknown("only trying tells", "psutil"),
)


def windows(commit_total: int, commit_limit: int) -> Machine:
    info = PerformanceInfo(commit_total, commit_limit, 16 * GIB, 9 * GIB)
    cuda = software(torch=Fact("2.9.0+cu128", "v"), torch_cuda=Fact("12.8", "v"), torchvision=unknown("absent", "v"))
    libraries = Fact(int(3.6 * GIB), "torch/lib")
    changed = type(cuda)(**{**vars(cuda), "torch_libraries": libraries})
    return compose(read_windows_memory(info, 1 * GIB), surroundings_elsewhere("windows", {}), NO_DRIVER, changed, DISK)


def test_the_structure_has_the_layout_that_windows_documents() -> None:
    assert ctypes.sizeof(_Structure) == 104  # on 64-bit Windows
    assert _Structure.CommitTotal.offset == 8
    assert _Structure.PageSize.offset == 80


def test_windows_counts_pages_and_we_count_bytes() -> None:
    raw = _Structure()
    raw.PageSize, raw.CommitTotal, raw.CommitLimit, raw.PhysicalTotal, raw.PhysicalAvailable = (
        4096,
        10,
        50,
        40,
        20,
    )
    assert from_structure(raw) == PerformanceInfo(40960, 204800, 163840, 81920)


def test_the_page_file_is_what_the_commit_limit_has_beyond_ram() -> None:
    memory = windows(18 * GIB, 20 * GIB).memory
    assert memory.swap_total.known == 4 * GIB
    assert memory.commit_enforced.known is True
    assert isinstance(memory.swap_in_rate.value, Unknown)


def test_spawned_workers_that_exceed_the_commit_limit_are_foretold() -> None:
    machine = windows(18 * GIB, 20 * GIB)
    (verdict,) = [one for one in judge(machine, Load(workers=8)) if one.name == "commit-short"]
    each = 3.6 * GIB + 221 * MIB
    assert verdict.severity.value == "fails"
    assert "1455" in verdict.why
    assert "no loader workers (num_workers=0)" in verdict.fix[0]
    size = int(next(word for word in verdict.fix[-1].split() if word.isdigit())) * MIB
    # A page file of that size really would do: RAM and page file hold what is promised and what the workers want.
    assert size + 16 * GIB >= 18 * GIB + 8 * each
    assert size + 16 * GIB < 18 * GIB + 8 * each + 4 * GIB


def test_a_page_file_that_is_large_enough_is_not_complained_about() -> None:
    assert "commit-short" not in [one.name for one in judge(windows(18 * GIB, 80 * GIB), Load(workers=8))]
    assert "commit-short" not in [one.name for one in judge(windows(18 * GIB, 20 * GIB), Load(workers=0))]


def test_the_commit_limit_bounds_the_budget_of_windows() -> None:
    tightest = windows(18 * GIB, 20 * GIB).budget.tightest
    assert tightest is not None
    assert (tightest.name, tightest.room) == ("commit limit", 2 * GIB)


def test_macos_grows_its_swap_and_has_no_commit_limit() -> None:
    memory = read_macos_memory(MacMemory(total=16 * GIB, available=7 * GIB, swap_total=0, swap_used=0))
    machine = compose(memory, surroundings_elsewhere("macos", {}), NO_DRIVER, software(), DISK)
    assert isinstance(machine.memory.commit_limit.value, Unknown)
    assert machine.budget.tightest is not None
    assert machine.budget.tightest.name == "RAM"
    assert "no-swap" not in [one.name for one in judge(machine)]
    assert machine_document(machine)["oomph"] == "machine"


def test_what_psutil_is_asked_exists_here_too() -> None:
    assert ask_macos().total > 0
    assert page_file_used() >= 0
