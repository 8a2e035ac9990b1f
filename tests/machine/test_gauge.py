from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from oomph.machine import GpuMemoryReader, HostMemoryReader
from oomph.machine._source import Source
from oomph.units import GIB


def test_this_host_is_read_for_real() -> None:
    read = HostMemoryReader(os.getpid()).read()
    assert read.ram_total == psutil.virtual_memory().total
    assert read.ram_available == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    assert read.swap_total == psutil.swap_memory().total


def test_a_recorded_container_tells_its_limit(recorded: Callable[[str], Source]) -> None:
    read = HostMemoryReader(source=recorded("docker_v2")).read()
    assert read.group_limit == 8 * GIB
    assert read.group_used is not None
    assert 0 < read.group_used < read.group_limit


@pytest.mark.parametrize("name", ["slurm", "cgroup_v1", "nested", "no_limit", "wsl", "bare_metal", "swapping"])
def test_every_recorded_machine_can_be_read(name: str, recorded: Callable[[str], Source]) -> None:
    read = HostMemoryReader(source=recorded(name)).read()
    assert read.ram_total
    assert (read.group_limit is None) == (read.group_used is None)


def test_an_empty_machine_is_read_as_unknown(tmp_path: Any) -> None:
    read = HostMemoryReader(source=Source.recorded(tmp_path)).read()
    assert set(vars(read).values()) == {None}


class Driver(SimpleNamespace):
    """Stands in for the bindings: two GPUs, of which the first is lost."""

    NVMLError = pynvml.NVMLError

    def nvmlInit(self) -> None:  # noqa: N802  the bindings' own names
        self.open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetName(self, _: int) -> bytes:  # noqa: N802
        return b"NVIDIA T4"

    def nvmlDeviceGetMemoryInfo(self, _: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=16 * GIB, free=4 * GIB, used=12 * GIB)

    def nvmlDeviceGetUtilizationRates(self, _: int) -> SimpleNamespace:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def nvmlDeviceGetComputeRunningProcesses(self, _: int) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=7, usedGpuMemory=GIB), SimpleNamespace(pid=9, usedGpuMemory=None)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, _: int) -> list[SimpleNamespace]:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def test_a_driver_that_refuses_questions_is_read_as_far_as_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    monkeypatch.setitem(__import__("sys").modules, "pynvml", driver)
    gauge = GpuMemoryReader()
    (gpu,) = gauge.read()
    assert (gpu.index, gpu.name, gpu.total, gpu.busy) == (1, "NVIDIA T4", 16 * GIB, None)
    assert gpu.processes == ((7, GIB), (9, None))
    gauge.close()
    assert driver.open is False
    assert gauge.read() == ()


def test_without_a_driver_a_reading_is_empty() -> None:
    gauge = GpuMemoryReader()
    assert all(reading.total for reading in gauge.read())
    gauge.close()
    gauge.close()
