from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from oomph.machine import Machine
from oomph.machine._cgroup import read_cgroups
from oomph.machine._machine import machine_from
from oomph.machine._source import Source
from oomph.units import GIB

from .recordings import NO_DRIVER, software

Recorded = Callable[[str], Source]
ReadMachine = Callable[[str], Machine]


@pytest.mark.parametrize(
    ("name", "bound", "room"),
    [
        ("bare_metal", "RAM", 51.2),
        ("docker_v2", "cgroup limit", 8 - 2),  # page cache that can be dropped doesn't count
        ("nested", "cgroup throttle", 11 - 4),
        ("cgroup_v1", "cgroup limit", 16 - 1.5),  # the hidden parent uses at least what its child does
        ("slurm", "cgroup limit", 32 - 5),
        ("wsl", "RAM", 6.9),
        ("no_limit", "RAM", 14.1),
        ("swapping", "RAM", 0.3),
    ],
)
def test_the_tightest_bound_sets_the_budget(machine: ReadMachine, name: str, bound: str, room: float) -> None:
    tightest = machine(name).budget.tightest
    assert tightest is not None
    assert tightest.name == bound
    assert tightest.room == pytest.approx(room * GIB, rel=1e-4)
    assert tightest.source.startswith("/")


def test_the_smallest_limit_is_told_apart_from_the_least_room(machine: ReadMachine) -> None:
    budget = machine("swapping").budget
    assert budget.smallest is not None
    assert budget.smallest.limit == pytest.approx(15.5 * GIB, rel=1e-4)


def test_what_a_slurm_job_asked_for_counts_even_without_a_group(machine: ReadMachine) -> None:
    bounds = {bound.name: bound.limit for bound in machine("slurm").budget.bounds}
    assert bounds["Slurm's memory request"] == 32 * GIB


def test_a_group_that_does_not_say_what_it_uses_does_not_claim_its_whole_limit(recorded: Recorded) -> None:
    source = recorded("nested")
    for file in source.path("/sys/fs/cgroup").rglob("memory.current"):
        if file.parent != source.path("/sys/fs/cgroup" + own_group(source)):
            file.unlink()
    groups = read_cgroups(source).memory
    used = (groups[0].current.known or 0) - (groups[0].reclaimable.known or 0)
    assert used > 0
    bounds = machine_from(source, NO_DRIVER, software(), "/data").budget.bounds
    assert [bound.limit - bound.room for bound in bounds if "cgroup" in bound.name] == [used] * 4


def test_where_no_group_says_what_it_uses_ram_is_the_most_there_is(recorded: Recorded) -> None:
    source = recorded("docker_v2")
    source.path("/sys/fs/cgroup/memory.current").unlink()
    meminfo = source.path("/proc/meminfo")
    meminfo.write_text(re.sub(r"MemAvailable: .*", "MemAvailable:    1048576 kB", meminfo.read_text()))
    bounds = machine_from(source, NO_DRIVER, software(), "/data").budget.bounds
    assert {bound.name: bound.room for bound in bounds} == {"RAM": GIB, "cgroup limit": GIB}


def own_group(source: Source) -> str:
    return source.path("/proc/self/cgroup").read_text().strip().removeprefix("0::")
