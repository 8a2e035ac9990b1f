from __future__ import annotations

from collections.abc import Callable

import pytest

from oomph.machine import Machine
from oomph.units import GIB

ReadMachine = Callable[[str], Machine]


@pytest.mark.parametrize(
    ("name", "bound", "room"),
    [
        ("bare_metal", "RAM", 51.2),
        ("docker_v2", "cgroup limit", 8 - 2),  # page cache that can be dropped doesn't count
        ("nested", "cgroup throttle", 11 - 4),
        ("cgroup_v1", "cgroup limit", 16),
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
