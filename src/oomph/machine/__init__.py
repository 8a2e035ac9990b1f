"""Facts: this machine, verdicts on it, and the catalog of GPUs and cloud machines. No torch."""

from ._budget import Bound, Budget
from ._catalog import CloudMachine, GpuSpec, Rates, clouds, gpus
from ._fact import NO_LIMIT, Fact, NoLimit, Unknown
from ._gauge import GpuMemoryReader, GpuReading, HostMemoryReader, HostReading
from ._gpu import DriverState, Gpu, GpuProcess, Graphics
from ._lookup import find, find_cloud, find_gpu, machines_with
from ._machine import Machine, load_machine, machine_document, read_machine
from ._process_memory import peak_rss_bytes, rss_bytes
from ._surroundings import EnvironmentKind
from ._target import OUTSIDE, Target, find_target, target_of, this_device
from .verdicts import Load, Severity, Verdict, default_workers, judge

__all__ = [
    "NO_LIMIT",
    "OUTSIDE",
    "Bound",
    "Budget",
    "CloudMachine",
    "DriverState",
    "EnvironmentKind",
    "Fact",
    "Gpu",
    "GpuMemoryReader",
    "GpuProcess",
    "GpuReading",
    "GpuSpec",
    "Graphics",
    "HostMemoryReader",
    "HostReading",
    "Load",
    "Machine",
    "NoLimit",
    "Rates",
    "Severity",
    "Target",
    "Unknown",
    "Verdict",
    "clouds",
    "default_workers",
    "find",
    "find_cloud",
    "find_gpu",
    "find_target",
    "gpus",
    "judge",
    "load_machine",
    "machine_document",
    "machines_with",
    "peak_rss_bytes",
    "read_machine",
    "rss_bytes",
    "target_of",
    "this_device",
]
