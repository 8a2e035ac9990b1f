"""Readings of GPU memory that are cheap enough to take every second during training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ._nvml import import_nvml, list_processes


@dataclass(frozen=True)
class GpuReading:
    """The memory of one GPU at one moment; sizes are in bytes.

    Attributes:
        index: The driver's index of the GPU.
        name: The product name.
        total: Memory of the GPU.
        free: Memory that is not in use.
        utilization: Percentage of the time in which a kernel ran.
        processes: Pid and memory of each process on the GPU; None if they are not visible, as in a container.
    """

    index: int
    name: str
    total: int
    free: int
    utilization: int | None
    processes: tuple[tuple[int, int | None], ...] | None


class GpuMemoryReader:
    """Reads all NVIDIA GPUs and keeps the driver open; without a driver or GPU, readings are empty."""

    def __init__(self) -> None:
        self._nvml = import_nvml()
        self._handles: list[tuple[int, str, Any]] = []
        self._open = False
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlInit()
            self._open = True
            self._handles = list(self._find_gpus())

    def _find_gpus(self) -> Iterator[tuple[int, str, Any]]:
        for index in range(self._nvml.nvmlDeviceGetCount()):
            # A GPU that fell off the bus has no handle; the others still work.
            with contextlib.suppress(self._nvml.NVMLError):
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                name = self._nvml.nvmlDeviceGetName(handle)
                yield index, name.decode(errors="replace") if isinstance(name, bytes) else str(name), handle

    def read(self) -> tuple[GpuReading, ...]:
        """Return the current values of every GPU."""
        readings = []
        for index, name, handle in self._handles:
            with contextlib.suppress(self._nvml.NVMLError):
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
                utilization, processes = self._utilization(handle), self._processes(handle)
                readings.append(GpuReading(index, name, memory.total, memory.free, utilization, processes))
        return tuple(readings)

    def _utilization(self, handle: Any) -> int | None:
        with contextlib.suppress(self._nvml.NVMLError):
            return int(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        return None

    def _processes(self, handle: Any) -> tuple[tuple[int, int | None], ...] | None:
        with contextlib.suppress(self._nvml.NVMLError):
            compute, graphics = list_processes(self._nvml, handle)
            return tuple(sorted({**graphics, **compute}.items())) or None
        return None

    def close(self) -> None:
        """Release the driver."""
        if self._open:
            self._open, self._handles = False, []
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()
