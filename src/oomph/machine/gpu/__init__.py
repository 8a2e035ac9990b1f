"""GPUs of this machine: driver facts, and memory readings that are cheap enough to take every second."""

from ._driver import MAX_DRIVER_BYTES, DriverState, Gpu, GpuProcess, NvidiaDriver, parse_driver
from ._memory_reader import GpuMemoryReader, GpuReading
from ._nvml import NvmlData, query_nvml

__all__ = [
    "MAX_DRIVER_BYTES",
    "DriverState",
    "Gpu",
    "GpuMemoryReader",
    "GpuProcess",
    "GpuReading",
    "NvidiaDriver",
    "NvmlData",
    "parse_driver",
    "query_nvml",
]
