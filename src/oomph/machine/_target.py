"""The target of a prediction: a GPU of the catalog, or this machine's CPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..errors import UsageError, quote
from ..units import MIB
from .catalog import CloudMachine, GpuSpec, Rates, find_gpu, find_in_catalog
from .gpu import Gpu

CPU = "cpu"
_MIN_IN_USE = 64 * MIB  # less is the driver's own memory, which varies
_VERSION = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,6}))?(?:[.+].*)?$", re.ASCII)


@dataclass(frozen=True)
class Target:
    """The device to predict for: a GPU, or the CPU.

    Attributes:
        name: The GPU's name, or "cpu".
        memory: Bytes of memory that programs can use.
        memory_known: True if a driver reported `memory`, False if it is the nominal size.
        capability: Compute capability as (major, minor).
        processors: Number of streaming multiprocessors.
        threads: Resident threads per multiprocessor.
        bandwidth: Memory bandwidth, in bytes per second.
        rates: Peak rates, in operations per second.
        outside: Bytes outside torch's allocator (CUDA context, loaded kernels): low, value, high.
        measured: True if oomph's rules were measured on this architecture.
        torch: The version of torch, such as "2.6".
        cudnn: The version of cuDNN, such as "9.1". It decides which attention kernel runs.
        link: Bandwidth between the device and pinned host memory, in bytes per second; assumed, as of PCIe 3.
        in_use: Bytes that other processes hold now, if it is a GPU of this machine; `memory` doesn't include them.
    """

    name: str
    memory: int
    memory_known: bool
    capability: tuple[int, int]
    processors: int
    threads: int
    bandwidth: float
    rates: Rates
    outside: tuple[int, int, int]
    measured: bool
    torch: str = "2.11"
    cudnn: str = "9.19"
    link: float = 12e9
    in_use: int = 0

    def with_free_memory(self, free: int) -> Target:
        """Return the target with the memory that other processes leave: `free` bytes, this process's own included."""
        in_use = self.memory - free
        return self if in_use < _MIN_IN_USE else replace(self, memory=free, in_use=in_use)

    @property
    def is_cpu(self) -> bool:
        """True if the target is the CPU with the memory of this machine."""
        return self.name == CPU

    @property
    def cudnn_number(self) -> int:
        """The version of cuDNN as the number that torch reports: 90100 for 9.1."""
        major, minor, patch = _parse_version("cuDNN", self.cudnn)
        return major * 10_000 + minor * 100 + patch


# By compute capability: cores per multiprocessor, and the clock that the catalog's fp32 rates were computed with.
_CORES_AND_CLOCK = {
    (6, 0): (64, 1.33e9),
    (6, 1): (128, 1.6e9),
    (7, 0): (64, 1.53e9),
    (7, 5): (64, 1.6e9),
    (8, 0): (64, 1.41e9),
    (8, 6): (128, 1.7e9),
    (8, 7): (128, 1.3e9),
    (8, 9): (128, 2.5e9),
    (9, 0): (128, 1.98e9),
    (10, 0): (128, 1.9e9),
    (12, 0): (128, 2.4e9),
}
_RESIDENT_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536}
_MEASURED_CAPABILITIES = {(9, 0)}
# Device memory of a process outside torch's allocator: low, value, high. Measured on an H200: 543 MiB after the first
# kernel, 640 MiB after one network, 800 MiB after thirteen model families.
OUTSIDE = (520 * MIB, 640 * MIB, 900 * MIB)
# On consumer GPUs the context is smaller: of the 7,933 MiB of an RTX 4060, a public run used 7,560 beside its context.
_CONSUMER_OUTSIDE = (150 * MIB, 300 * MIB, 600 * MIB)
_CONSUMER_CAPABILITIES = {(8, 6), (8, 9)}
# The cuDNN that torch's wheels come with, from this version of torch on.
_BUNDLED_CUDNN = {
    (2, 3): "8.9",
    (2, 4): "9.1",
    (2, 7): "9.5",
    (2, 8): "9.10",
    (2, 11): "9.19",
}


def find_target(name: str, torch: str | None = None, cudnn: str | None = None) -> Target:
    """Return the target with a name: a GPU of the catalog, the GPU of a cloud machine, or "cpu" for this machine's CPU.

    Args:
        name: The name in the catalog, such as "RTX 3060" or "p4d.24xlarge".
        torch: The version of torch that will run there, such as "2.6"; by default the one that oomph was measured with.
        cudnn: The version of cuDNN, such as "9.1"; by default the one that comes with that torch.

    Raises:
        UsageError: The name is unknown or ambiguous, the GPU doesn't run CUDA, or a version is not a version.
    """
    if name.strip().lower() == CPU:
        return _this_cpu()
    entry = find_in_catalog(name)
    spec, fraction = (find_gpu(entry.gpu), entry.gpu_fraction) if isinstance(entry, CloudMachine) else (entry, 1.0)
    target = target_of(spec, fraction)
    if torch is not None:
        target = replace(target, torch=torch, cudnn=_bundled_cudnn(torch))
    if cudnn is not None:
        _parse_version("cuDNN", cudnn)
        target = replace(target, cudnn=cudnn)
    return target


def _parse_version(library: str, text: str) -> tuple[int, int, int]:
    """Return major, minor and patch of a version such as "2.6", "9.1.0.70" or "2.11.0+cu130".

    Raises:
        UsageError: The text has another form.
    """
    match = _VERSION.match(text)
    if match is None:
        raise UsageError(f"the version of {library} is {quote(text)}", 'write it as numbers, such as "2.6" or "9.1.0"')
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch


def _bundled_cudnn(torch: str) -> str:
    version = _parse_version("torch", torch)[:2]
    known = [cudnn for since, cudnn in _BUNDLED_CUDNN.items() if since <= version]
    return known[-1] if known else next(iter(_BUNDLED_CUDNN.values()))


def target_of(spec: GpuSpec, fraction: float = 1.0) -> Target:
    """Return the target of a catalog entry; `fraction` is the part of the memory that a GPU slice has."""
    if spec.compute_capability is None or spec.bandwidth is None or spec.rates.fp32 is None:
        raise UsageError(
            f"predictions support only NVIDIA GPUs, and {spec.name} is not one", "name another GPU, such as H200"
        )
    major, minor = spec.compute_capability.split(".")
    capability = int(major), int(minor)
    cores, clock = _CORES_AND_CLOCK.get(capability, (128, 1.7e9))
    return Target(
        name=spec.name,
        memory=int(spec.usable * fraction),
        memory_known=not spec.usable_is_nominal,
        capability=capability,
        processors=max(round(spec.rates.fp32 / (2 * cores * clock)), 1),
        threads=_RESIDENT_THREADS.get(capability, 2048),
        bandwidth=spec.bandwidth,
        rates=spec.rates,
        outside=_CONSUMER_OUTSIDE if capability in _CONSUMER_CAPABILITIES else OUTSIDE,
        measured=capability in _MEASURED_CAPABILITIES,
    )


def this_target() -> Target:
    """Return the target of this machine: its first GPU with the memory that is free now, or its CPU.

    Raises:
        UsageError: The GPU is not in the catalog.
    """
    from ._machine import read_machine  # noqa: PLC0415

    gpu = next((gpu for gpu in read_machine().gpus if gpu.name.known is not None), None)
    return _this_cpu() if gpu is None else target_of_gpu(gpu)


def resolve_target(target: Target | str | None) -> Target:
    """Return a target, the one of a name, or without one this machine's.

    Raises:
        UsageError: No GPU or machine has the name, or this machine's GPU is not in the catalog.
    """
    if target is None:
        return this_target()
    return find_target(target) if isinstance(target, str) else target


def target_of_gpu(gpu: Gpu) -> Target:
    """Return the target of a GPU of this machine, with the memory that other processes leave."""
    target, free = find_target(gpu.name.known or ""), gpu.free.known
    if free is None:
        return target
    own_bytes = sum(process.used.known or 0 for process in gpu.processes.known or () if process.is_self)
    return target.with_free_memory(free + own_bytes)


def this_device() -> str:
    """Return the driver's name of this machine's first GPU, or "cpu" if there is no GPU."""
    from ._machine import read_machine  # noqa: PLC0415

    for gpu in read_machine().gpus:
        if gpu.name.known is not None:
            return gpu.name.known
    return CPU


# Rough rates of one core of a recent server.
_CORE_FLOPS, _CORE_BANDWIDTH = 6e10, 8e9


def _this_cpu() -> Target:
    from ._machine import read_machine  # noqa: PLC0415

    machine = read_machine()
    bound = machine.budget.tightest
    cores = max(round(machine.cores.usable.known or 1), 1)
    rate = cores * _CORE_FLOPS
    return Target(
        name=CPU,
        memory=bound.available if bound else 0,
        memory_known=bound is not None,
        capability=(0, 0),
        processors=cores,
        threads=1,
        bandwidth=cores * _CORE_BANDWIDTH,
        rates=Rates(fp32=rate, tf32=rate, bf16=rate, fp16=rate / 8),
        outside=(0, 0, 0),
        measured=True,
    )
