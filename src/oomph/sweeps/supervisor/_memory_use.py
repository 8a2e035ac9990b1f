"""The memory of a cell's processes, and its peak."""

from __future__ import annotations

import platform
from collections.abc import Mapping

import psutil

from ...machine import GpuMemoryReader, GpuReading
from ...units import KIB


class MemoryUse:
    """Reads the memory of a process tree and keeps the peaks; sizes are in bytes.

    Args:
        is_alone: True if GPU memory that is in use since now may be counted where the driver doesn't show processes.

    Attributes:
        host: The RSS of the tree in the last reading.
        gpu: Its GPU memory in the last reading, on the GPU where it uses most; None without a GPU.
        host_peak, gpu_peak: The largest readings.
    """

    def __init__(self, *, is_alone: bool) -> None:
        self._reader = GpuMemoryReader()
        self._used_before = {gpu.index: gpu.total - gpu.free for gpu in self._reader.read()} if is_alone else None
        self.host = 0
        self.gpu: int | None = None
        self.host_peak = 0
        self.gpu_peak: int | None = None

    def read(self, rss: Mapping[int, int]) -> None:
        """Take a reading of the processes whose RSS is given by pid."""
        self.host = sum(rss.values())
        self.host_peak = max(self.host_peak, self.host)
        sizes = [self._tree_bytes(gpu, set(rss)) for gpu in self._reader.read()]
        self.gpu = max(sizes, default=0) or None
        if self.gpu is not None:
            self.gpu_peak = max(self.gpu_peak or 0, self.gpu)

    def add_peak_of_children(self) -> None:
        """Raise the peak of the host to that of the largest process that has ended: it may lie between two readings."""
        if platform.system() == "Windows":
            return
        import resource  # noqa: PLC0415  not on Windows

        unit = 1 if platform.system() == "Darwin" else KIB
        own, largest = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        # Between fork and exec a child counts the memory of this process.
        if largest > own:
            self.host_peak = max(self.host_peak, largest * unit)

    def close(self) -> None:
        """Release the driver."""
        self._reader.close()

    def _tree_bytes(self, gpu: GpuReading, pids: set[int]) -> int:
        sizes = {pid: size or 0 for pid, size in gpu.processes or ()}
        if pids & sizes.keys() or any(psutil.pid_exists(pid) for pid in sizes):
            return sum(size for pid, size in sizes.items() if pid in pids)
        # In a container the driver lists no processes, or pids of the host.
        if self._used_before is None:
            return 0
        return max(gpu.total - gpu.free - self._used_before.get(gpu.index, 0), 0)
