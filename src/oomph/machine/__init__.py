"""Facts about this machine, verdicts on it, and the catalog of GPUs and cloud machines. Imports no torch."""

from ._budget import Bound, Budget
from ._fact import NO_LIMIT, Fact, NoLimit, Unknown
from ._machine import Machine, load_machine, machine_document, read_machine
from ._target import OUTSIDE, Target, find_target, target_of, this_device
from .catalog import (
    NOMINAL,
    CloudMachine,
    GpuSpec,
    Rates,
    cloud_machines,
    cloud_machines_with,
    find_cloud_machine,
    find_gpu,
    find_in_catalog,
    gpu_specs,
)
from .gpu import DriverState, Gpu, GpuMemoryReader, GpuProcess, GpuReading, NvidiaDriver
from .host import (
    EnvironmentKind,
    HostMemoryLow,
    HostMemoryReader,
    HostReading,
    MemoryWatch,
    peak_rss_bytes,
    process_rss_bytes,
    pss_bytes,
    rss_bytes,
)
from .verdicts import DataLoaderConfig, Severity, Verdict, default_workers, diagnose_machine

__all__ = [
    "NOMINAL",
    "NO_LIMIT",
    "OUTSIDE",
    "Bound",
    "Budget",
    "CloudMachine",
    "DataLoaderConfig",
    "DriverState",
    "EnvironmentKind",
    "Fact",
    "Gpu",
    "GpuMemoryReader",
    "GpuProcess",
    "GpuReading",
    "GpuSpec",
    "HostMemoryLow",
    "HostMemoryReader",
    "HostReading",
    "Machine",
    "MemoryWatch",
    "NoLimit",
    "NvidiaDriver",
    "Rates",
    "Severity",
    "Target",
    "Unknown",
    "Verdict",
    "cloud_machines",
    "cloud_machines_with",
    "default_workers",
    "diagnose_machine",
    "find_cloud_machine",
    "find_gpu",
    "find_in_catalog",
    "find_target",
    "gpu_specs",
    "load_machine",
    "machine_document",
    "peak_rss_bytes",
    "process_rss_bytes",
    "pss_bytes",
    "read_machine",
    "rss_bytes",
    "target_of",
    "this_device",
]
