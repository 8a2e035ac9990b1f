"""What something is trained on: a GPU of the catalog, or this machine's processor."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from ..units import MIB
from ._catalog import CloudMachine, GpuSpec, Rates
from ._lookup import find, find_gpu

CPU = "cpu"


@dataclass(frozen=True)
class Target:
    """What to predict for: a GPU, or the processor.

    Attributes:
        name: the GPU's name, or "cpu".
        memory: bytes that programs see.
        memory_known: whether a driver reported that size, and not only the box.
        capability: compute capability as (major, minor).
        processors: streaming multiprocessors.
        threads: resident threads of each.
        bandwidth: bytes per second of memory traffic.
        rates: operations per second.
        outside: bytes that live outside of torch's allocator (context, loaded kernels): low, value, high.
        measured: whether oomph's rules were measured on this architecture.
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
        """Whether it is the processor, with the machine's own memory."""
        return self.name == CPU


# Cores of one multiprocessor and the clock that the catalog's fp32 rates were computed with, by compute capability.
_CORES = {
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
_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536}
_MEASURED = {(9, 0)}
# What a process holds beside torch's memory: at least, usually, at most. Seen on an H200: 543 MiB after the first
# kernel, 640 after one network, 800 after thirteen families.
OUTSIDE = (520 * MIB, 640 * MIB, 900 * MIB)


def find_target(name: str) -> Target:
    """The target of that name: a GPU of the catalog, the GPU of a cloud machine, or "cpu", this machine's processor.

    Raises:
        UsageError: there is none, several, or none that runs CUDA.
    """
    if name.strip().lower() == CPU:
        return _this_cpu()
    found = find(name)
    spec = find_gpu(found.gpu) if isinstance(found, CloudMachine) else found
    share = found.gpu_share if isinstance(found, CloudMachine) else 1.0
    return target_of(spec, share)


def target_of(spec: GpuSpec, share: float = 1.0) -> Target:
    """The target that a row of the catalog describes; a slice of a GPU has that share of its memory."""
    if spec.compute_capability is None or spec.bandwidth is None or spec.rates.fp32 is None:
        raise UsageError(f"predictions need an NVIDIA GPU, and {spec.name} is none", "name another, such as H200")
    major, minor = spec.compute_capability.split(".")
    capability = int(major), int(minor)
    cores, clock = _CORES.get(capability, (128, 1.7e9))
    return Target(
        name=spec.name,
        memory=int(spec.usable * share),
        memory_known=bool(spec.usable_source),
        capability=capability,
        processors=max(round(spec.rates.fp32 / (2 * cores * clock)), 1),
        threads=_THREADS.get(capability, 2048),
        bandwidth=spec.bandwidth,
        rates=spec.rates,
        outside=OUTSIDE,
        measured=capability in _MEASURED,
    )


def this_device() -> str:
    """The name of this machine's first GPU, as its driver says it, or "cpu" where there is none."""
    from ._machine import read_machine  # noqa: PLC0415

    for gpu in read_machine().graphics.gpus:
        if gpu.name.known is not None:
            return gpu.name.known
    return CPU


# What a core of a recent server does, roughly: operations and bytes per second.
_CORE_RATE, _CORE_BANDWIDTH = 6e10, 8e9


def _this_cpu() -> Target:
    """This machine's processor, with the memory that this process may use."""
    from ._machine import read_machine  # noqa: PLC0415  reading all facts takes a moment

    facts = read_machine()
    bound = facts.budget.tightest
    cores = max(round(facts.cores.usable.known or 1), 1)
    rate = cores * _CORE_RATE
    return Target(
        name=CPU,
        memory=bound.room if bound else 0,
        memory_known=bound is not None,
        capability=(0, 0),
        processors=cores,
        threads=1,
        bandwidth=cores * _CORE_BANDWIDTH,
        rates=Rates(fp32=rate, tf32=rate, bf16=rate, fp16=rate / 8),
        outside=(0, 0, 0),
        measured=True,
    )
