from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from oomph.machine import Machine
from oomph.machine._machine import read_linux_machine
from oomph.machine.host import Source, read_cgroups
from oomph.units import GIB

from .recordings import NO_DRIVER, software

Recorded = Callable[[str], Source]
ReadMachine = Callable[[str], Machine]


@pytest.mark.parametrize(
    ("name", "bound", "available"),
    [
        ("bare_metal", "RAM", 51.2),
        ("docker_v2", "cgroup limit", 8 - 2),  # droppable page cache doesn't count as used
        ("nested", "cgroup throttle", 11 - 4),
        ("cgroup_v1", "cgroup limit", 16 - 1.5),  # the hidden parent uses at least as much as its child
        ("slurm", "cgroup limit", 32 - 5),
        ("wsl", "RAM", 6.9),
        ("no_limit", "RAM", 14.1),
        ("swapping", "RAM", 0.3),
    ],
)
def test_tightest_bound_sets_the_budget(machine: ReadMachine, name: str, bound: str, available: float) -> None:
    tightest = machine(name).budget.tightest
    assert tightest is not None
    assert tightest.name == bound
    assert tightest.available == pytest.approx(available * GIB, rel=1e-4)
    assert tightest.source.startswith("/")


def test_slurm_request_counts_without_a_cgroup(machine: ReadMachine) -> None:
    bounds = {bound.name: bound.limit for bound in machine("slurm").budget.bounds}
    assert bounds["Slurm memory request"] == 32 * GIB


def test_parent_cgroup_of_unknown_use_counts_the_use_of_its_child(recorded: Recorded) -> None:
    source = recorded("nested")
    path = source.path("/proc/self/cgroup").read_text().strip().removeprefix("0::")
    for file in source.path("/sys/fs/cgroup").rglob("memory.current"):
        if file.parent != source.path(f"/sys/fs/cgroup{path}"):
            file.unlink()
    used = read_cgroups(source).memory[0].used
    assert used
    bounds = read_linux_machine(source, NO_DRIVER, software(), "/data").budget.bounds
    assert [bound.limit - bound.available for bound in bounds if "cgroup" in bound.name] == [used] * 4


def test_available_ram_bounds_a_cgroup_of_unknown_use(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    source.path("/sys/fs/cgroup/memory.current").unlink()
    meminfo = source.path("/proc/meminfo")
    meminfo.write_text(re.sub(r"MemAvailable: .*", "MemAvailable:    1048576 kB", meminfo.read_text()))
    bounds = read_linux_machine(source, NO_DRIVER, software(), "/data").budget.bounds
    assert {bound.name: bound.available for bound in bounds} == {"RAM": GIB, "cgroup limit": GIB}
