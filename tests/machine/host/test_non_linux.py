"""macOS and Windows, from recorded values: the tests don't run on these systems."""

from __future__ import annotations

import ctypes

from oomph.machine import DataLoaderConfig, Fact, Machine, Unknown, diagnose_machine, machine_document
from oomph.machine._fact import unknown
from oomph.machine._machine import non_linux_machine
from oomph.machine.host import Volume, non_linux_environment
from oomph.machine.host._macos import MacMemory, macos_memory, query_psutil
from oomph.machine.host._windows import (
    PerformanceInfo,
    PerformanceInformation,
    in_bytes,
    page_file_used,
    windows_memory,
)
from oomph.units import GIB, MIB

from ..recordings import NO_DRIVER, software

DISK = Volume(
    path="C:\\runs",
    total=Fact(900 * GIB, "psutil"),
    free=Fact(300 * GIB, "psutil"),
    rotational=unknown("not read on this system", "psutil"),
    writable=unknown("not read on this system", "psutil"),
)


def windows(commit_total: int, commit_limit: int) -> Machine:
    info = PerformanceInfo(commit_total, commit_limit, 16 * GIB, 9 * GIB)
    cuda = software(
        torch=Fact("2.9.0+cu128", "v"),
        torch_cuda=Fact("12.8", "v"),
        torch_library_bytes=Fact(int(3.6 * GIB), "torch/lib"),
        torchvision=unknown("absent", "v"),
    )
    memory = windows_memory(info, page_file_used=GIB)
    return non_linux_machine(memory, non_linux_environment("windows", {}), NO_DRIVER, cuda, DISK)


def names(machine: Machine, loader: DataLoaderConfig | None = None) -> list[str]:
    return [verdict.name for verdict in diagnose_machine(machine, loader)]


def test_structure_has_the_layout_that_windows_documents() -> None:
    assert ctypes.sizeof(PerformanceInformation) == 104  # on 64-bit Windows
    assert PerformanceInformation.CommitTotal.offset == 8
    assert PerformanceInformation.PageSize.offset == 80


def test_page_counts_of_windows_become_bytes() -> None:
    raw = PerformanceInformation()
    raw.PageSize, raw.CommitTotal, raw.CommitLimit, raw.PhysicalTotal, raw.PhysicalAvailable = 4096, 10, 50, 40, 20
    assert in_bytes(raw) == PerformanceInfo(40960, 204800, 163840, 81920)


def test_page_file_is_the_commit_limit_beyond_ram() -> None:
    memory = windows(18 * GIB, 20 * GIB).memory
    assert memory.swap_total.known == 4 * GIB
    assert memory.commit_enforced.known is True
    assert isinstance(memory.swap_in_rate.value, Unknown)


def test_workers_beyond_the_commit_limit_get_a_verdict() -> None:
    machine = windows(18 * GIB, 20 * GIB)
    verdicts = diagnose_machine(machine, DataLoaderConfig(workers=8))
    (verdict,) = [verdict for verdict in verdicts if verdict.name == "commit-limit"]
    per_worker = 3.6 * GIB + 221 * MIB
    assert verdict.severity.value == "fails"
    assert "1455" in verdict.why
    assert "no loader workers (num_workers=0)" in verdict.fix[0]
    size = int(next(word for word in verdict.fix[-1].split() if word.isdigit())) * MIB
    # RAM and the suggested page file together hold the current commit charge and all workers.
    assert 18 * GIB + 8 * per_worker <= size + 16 * GIB < 18 * GIB + 8 * per_worker + 4 * GIB


def test_sufficient_page_file_gets_no_verdict() -> None:
    assert "commit-limit" not in names(windows(18 * GIB, 80 * GIB), DataLoaderConfig(workers=8))
    assert "commit-limit" not in names(windows(18 * GIB, 20 * GIB), DataLoaderConfig(workers=0))


def test_commit_limit_bounds_the_budget_of_windows() -> None:
    tightest = windows(18 * GIB, 20 * GIB).budget.tightest
    assert tightest is not None
    assert (tightest.name, tightest.available) == ("commit limit", 2 * GIB)


def test_macos_has_no_commit_limit_and_needs_no_swap() -> None:
    memory = macos_memory(MacMemory(total=16 * GIB, available=7 * GIB, swap_total=0, swap_used=0))
    machine = non_linux_machine(memory, non_linux_environment("macos", {}), NO_DRIVER, software(), DISK)
    assert isinstance(machine.memory.commit_limit.value, Unknown)
    assert machine.budget.tightest is not None
    assert machine.budget.tightest.name == "RAM"
    assert "no-swap" not in names(machine)
    assert machine_document(machine)["oomph"] == "machine"


def test_psutil_has_the_functions_that_are_used() -> None:
    assert query_psutil().total > 0
    assert page_file_used() >= 0
