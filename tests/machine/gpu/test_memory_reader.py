from __future__ import annotations

from types import SimpleNamespace

import pynvml
import pytest

from oomph.machine import GpuMemoryReader
from oomph.units import GIB


class FakeNvml(SimpleNamespace):
    """Stand-in for pynvml with two GPUs, of which the first is lost."""

    NVMLError = pynvml.NVMLError

    def nvmlInit(self) -> None:  # noqa: N802  names of pynvml
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


def test_queries_that_the_driver_rejects_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(__import__("sys").modules, "pynvml", nvml)
    reader = GpuMemoryReader()
    (gpu,) = reader.read()
    assert (gpu.index, gpu.name, gpu.total, gpu.utilization) == (1, "NVIDIA T4", 16 * GIB, None)
    assert gpu.processes == ((7, GIB), (9, None))
    reader.close()
    assert nvml.open is False
    assert reader.read() == ()


def test_reader_works_with_and_without_a_driver() -> None:
    reader = GpuMemoryReader()
    assert all(reading.total for reading in reader.read())
    reader.close()
    reader.close()
