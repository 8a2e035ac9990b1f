"""The host: memory, cgroups, process limits, cores, disks and the environment a process runs in."""

from ._cgroups import Cgroups, CpuCgroup, MemoryCgroup, memory_cgroup, memory_cgroups, read_cgroups
from ._cores import Cores, read_cores
from ._environment import Environment, EnvironmentKind, non_linux_environment, read_environment
from ._limits import ProcessLimits, no_limits, read_limits
from ._memory import Memory, read_memory
from ._memory_reader import HostMemoryReader, HostReading
from ._memory_watch import HostMemoryLow, MemoryWatch
from ._non_linux import read_non_linux_memory, read_non_linux_volume
from ._pressure import Pressure, no_pressure, read_pressure
from ._process_memory import peak_rss_bytes, process_rss_bytes, pss_bytes, rss_bytes
from ._source import Source
from ._volume import SHM, Volume, no_volume, read_volume

__all__ = [
    "SHM",
    "Cgroups",
    "Cores",
    "CpuCgroup",
    "Environment",
    "EnvironmentKind",
    "HostMemoryLow",
    "HostMemoryReader",
    "HostReading",
    "Memory",
    "MemoryCgroup",
    "MemoryWatch",
    "Pressure",
    "ProcessLimits",
    "Source",
    "Volume",
    "memory_cgroup",
    "memory_cgroups",
    "no_limits",
    "no_pressure",
    "no_volume",
    "non_linux_environment",
    "peak_rss_bytes",
    "process_rss_bytes",
    "pss_bytes",
    "read_cgroups",
    "read_cores",
    "read_environment",
    "read_limits",
    "read_memory",
    "read_non_linux_memory",
    "read_non_linux_volume",
    "read_pressure",
    "read_volume",
    "rss_bytes",
]
