from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from oomph.machine import HostMemoryReader
from oomph.machine.host import Source
from oomph.units import GIB


def test_this_host_is_read() -> None:
    reading = HostMemoryReader(os.getpid()).read()
    assert reading.ram_total == psutil.virtual_memory().total
    assert reading.ram_available == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    assert reading.swap_total == psutil.swap_memory().total


def test_cgroup_limit_of_a_container_is_read(recorded: Callable[[str], Source]) -> None:
    reading = HostMemoryReader(source=recorded("docker_v2")).read()
    assert reading.cgroup_limit == 8 * GIB
    assert reading.cgroup_used == 2 * GIB


@pytest.mark.parametrize("name", ["slurm", "cgroup_v1", "nested", "no_limit", "wsl", "bare_metal", "swapping"])
def test_every_recorded_machine_can_be_read(name: str, recorded: Callable[[str], Source]) -> None:
    reading = HostMemoryReader(source=recorded(name)).read()
    assert reading.ram_total
    assert (reading.cgroup_limit is None) == (reading.cgroup_used is None)


def test_all_values_of_an_empty_machine_are_none(tmp_path: Path) -> None:
    reading = HostMemoryReader(source=Source.recorded(tmp_path)).read()
    assert set(vars(reading).values()) == {None}
