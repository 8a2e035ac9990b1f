"""The effective budget of host memory: the tightest of all limits on this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ._fact import Limit, limit_bytes
from .host import Environment, Memory, MemoryCgroup, ProcessLimits

CGROUP_LIMIT = "cgroup limit"
CGROUP_THROTTLE = "cgroup throttle"


@dataclass(frozen=True)
class Bound:
    """A limit on host memory.

    Attributes:
        name: The kind of limit, as text.
        limit: The whole size, in bytes.
        available: The bytes that are left now.
        source: Where it was read.
    """

    name: str
    limit: int
    available: int
    source: str


@dataclass(frozen=True)
class Budget:
    """All limits on host memory, the one with the least memory left first; empty if none could be read."""

    bounds: tuple[Bound, ...]

    @property
    def tightest(self) -> Bound | None:
        """The limit that will be reached first."""
        return self.bounds[0] if self.bounds else None


def memory_budget(
    memory: Memory, cgroups: tuple[MemoryCgroup, ...], limits: ProcessLimits, environment: Environment
) -> Budget:
    """Collect the limits of a machine."""
    bounds = [
        *_ram_bound(memory),
        *_cgroup_bounds(cgroups, memory),
        *_ulimit_bound("address-space limit", limits.address_space, limits.address_space_used.known),
        *_ulimit_bound("data limit", limits.data, limits.data_used.known),
        *_commit_bound(memory),
        *_slurm_bound(environment),
    ]
    return Budget(tuple(sorted(bounds, key=lambda bound: (bound.available, bound.limit))))


def _ram_bound(memory: Memory) -> Iterator[Bound]:
    total, available = memory.ram_total, memory.ram_available
    if total.known is not None:
        yield Bound("RAM", total.known, total.known if available.known is None else available.known, available.source)


def _cgroup_bounds(cgroups: tuple[MemoryCgroup, ...], memory: Memory) -> Iterator[Bound]:
    """Return the limits of every level; the process's own group comes first."""
    used: int | None = None
    for cgroup in cgroups:
        # A group uses at least as much as the groups inside it, even if it doesn't report its use.
        used = cgroup.used if used is None else max(used, cgroup.used or 0)
        for name, limit in ((CGROUP_LIMIT, cgroup.limit), (CGROUP_THROTTLE, cgroup.high)):
            size = limit_bytes(limit)
            if size is not None:
                yield Bound(name, size, _available(size, used, memory), limit.source)


def _available(limit: int, used: int | None, memory: Memory) -> int:
    """Return what is left of a limit; if the use is unknown, at most the available RAM."""
    if used is not None:
        return max(limit - used, 0)
    return limit if memory.ram_available.known is None else min(limit, memory.ram_available.known)


def _ulimit_bound(name: str, limit: Limit, used: int | None) -> Iterator[Bound]:
    size = limit_bytes(limit)
    if size is not None:
        yield Bound(name, size, max(size - (used or 0), 0), limit.source)


def _commit_bound(memory: Memory) -> Iterator[Bound]:
    limit, charge = memory.commit_limit, memory.commit_charge
    if memory.commit_enforced.known and limit.known is not None and charge.known is not None:
        yield Bound("commit limit", limit.known, max(limit.known - charge.known, 0), limit.source)


def _slurm_bound(environment: Environment) -> Iterator[Bound]:
    """Return the job's memory request: Slurm may enforce it by polling, without a cgroup limit."""
    request = environment.slurm_memory
    if request.known is not None:
        yield Bound("Slurm memory request", request.known, request.known, request.source)
