from __future__ import annotations

import os

import pytest

from oomph.machine import GpuReading
from oomph.sweeps.supervisor import _memory_use
from oomph.sweeps.supervisor._memory_use import MemoryUse
from oomph.units import GIB

FOREIGN = 2**22 + 1  # above the largest pid of Linux, as pids of another namespace may be


class Gpus:
    """A driver with GPUs that this machine doesn't have."""

    def __init__(self) -> None:
        self.readings: tuple[GpuReading, ...] = ()

    def show(self, *gpus: tuple[int, tuple[tuple[int, int | None], ...] | None]) -> None:
        """Set the used bytes and the processes of each GPU."""
        self.readings = tuple(
            GpuReading(index, "GPU", 80 * GIB, 80 * GIB - used, 0, processes)
            for index, (used, processes) in enumerate(gpus)
        )

    def read(self) -> tuple[GpuReading, ...]:
        return self.readings

    def close(self) -> None:
        pass


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    driver = Gpus()
    monkeypatch.setattr(_memory_use, "GpuMemoryReader", lambda: driver)
    return driver


def test_the_gpu_with_most_memory_of_the_tree_counts(gpus: Gpus) -> None:
    memory = MemoryUse(is_alone=False)
    gpus.show((9 * GIB, ((7, 2 * GIB), (8, GIB), (os.getpid(), 6 * GIB))), (5 * GIB, ((8, 5 * GIB),)))
    memory.read({7: 100, 8: 50})
    assert (memory.host, memory.gpu) == (150, 5 * GIB)
    gpus.show((GIB, ((7, GIB),)), (0, None))
    memory.read({7: 20})
    assert (memory.host, memory.gpu, memory.host_peak, memory.gpu_peak) == (20, GIB, 150, 5 * GIB)


def test_in_a_container_a_cell_that_runs_alone_gets_what_came_into_use(gpus: Gpus) -> None:
    for processes in (None, ((FOREIGN, 3 * GIB),)):
        gpus.show((GIB, None))
        memory = MemoryUse(is_alone=True)
        gpus.show((4 * GIB, processes))
        memory.read({7: 1})
        assert memory.gpu_peak == 3 * GIB


def test_in_a_container_a_cell_beside_others_gets_none(gpus: Gpus) -> None:
    memory = MemoryUse(is_alone=False)
    gpus.show((4 * GIB, None))
    memory.read({7: 1})
    assert memory.gpu_peak is None


def test_memory_of_other_processes_is_not_the_cells(gpus: Gpus) -> None:
    gpus.show((0, None))
    memory = MemoryUse(is_alone=True)
    gpus.show((4 * GIB, ((os.getpid(), 4 * GIB),)))
    memory.read({FOREIGN: 1})
    assert memory.gpu_peak is None
