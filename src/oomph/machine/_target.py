"""The target of a prediction: a GPU of the catalog, or this machine's CPU."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from ..units import MIB
from .catalog import CloudMachine, GpuSpec, Rates, find_gpu, find_in_catalog

CPU = "cpu"


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

    @property
    def is_cpu(self) -> bool:
        """True if the target is the CPU with the memory of this machine."""
        return self.name == CPU


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


def find_target(name: str) -> Target:
    """Return the target with a name: a GPU of the catalog, the GPU of a cloud machine, or "cpu" for this machine's CPU.

    Raises:
        UsageError: The name is unknown or ambiguous, or the GPU doesn't run CUDA.
    """
    if name.strip().lower() == CPU:
        return _this_cpu()
    entry = find_in_catalog(name)
    if isinstance(entry, CloudMachine):
        return target_of(find_gpu(entry.gpu), entry.gpu_fraction)
    return target_of(entry)


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
        outside=OUTSIDE,
        measured=capability in _MEASURED_CAPABILITIES,
    )


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
