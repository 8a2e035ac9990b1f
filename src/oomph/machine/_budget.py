"""The effective budget of host memory: the smallest of everything that limits this process, and which one it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ._cgroup import MemoryGroup
from ._fact import Limit, limited
from ._limits import Limits
from ._memory import Memory
from ._surroundings import Environment

CGROUP_LIMIT = "cgroup limit"
CGROUP_THROTTLE = "cgroup throttle"


@dataclass(frozen=True)
class Bound:
    """One thing that limits host memory.

    Attributes:
        name: what it is, in words.
        limit: its whole size in bytes.
        room: what is left of it now.
        source: where it was read.
    """

    name: str
    limit: int
    room: int
    source: str


@dataclass(frozen=True)
class Budget:
    """Every bound on host memory, the one with the least room first; empty when nothing could be read."""

    bounds: tuple[Bound, ...]

    @property
    def tightest(self) -> Bound | None:
        """The bound that will be hit first."""
        return self.bounds[0] if self.bounds else None

    @property
    def smallest(self) -> Bound | None:
        """The bound with the smallest whole size, whatever is in use now."""
        return min(self.bounds, key=lambda bound: bound.limit, default=None)


def find_budget(memory: Memory, groups: tuple[MemoryGroup, ...], limits: Limits, surroundings: Environment) -> Budget:
    """Collect the bounds of a machine."""
    bounds = [
        *_ram(memory),
        *_groups(groups, memory),
        *_rlimit("address-space limit", limits.address_space, limits.address_space_used.known),
        *_rlimit("data limit", limits.data, limits.data_used.known),
        *_commit(memory),
        *_slurm(surroundings),
    ]
    return Budget(tuple(sorted(bounds, key=lambda bound: (bound.room, bound.limit))))


def _ram(memory: Memory) -> Iterator[Bound]:
    total, available = memory.ram_total, memory.ram_available
    if total.known is not None:
        room = total.known if available.known is None else available.known
        yield Bound("RAM", total.known, room, available.source)


def _groups(groups: tuple[MemoryGroup, ...], memory: Memory) -> Iterator[Bound]:
    """The limits of every level; the process's own group comes first."""
    used: int | None = None
    for group in groups:
        # A group uses at least what the groups inside of it use, whether it tells or not.
        own = _used(group)
        used = own if used is None else max(used, own or 0)
        for name, limit in ((CGROUP_LIMIT, group.maximum), (CGROUP_THROTTLE, group.high)):
            size = limited(limit)
            if size is not None:
                yield Bound(name, size, _room(size, used, memory), limit.source)


def _used(group: MemoryGroup) -> int | None:
    if group.current.known is None:
        return None
    return max(group.current.known - (group.reclaimable.known or 0), 0)


def _room(limit: int, used: int | None, memory: Memory) -> int:
    """What is left of a limit; where nobody says what is used, no more than RAM has."""
    if used is not None:
        return max(limit - used, 0)
    return limit if memory.ram_available.known is None else min(limit, memory.ram_available.known)


def _rlimit(name: str, limit: Limit, used: int | None) -> Iterator[Bound]:
    size = limited(limit)
    if size is not None:
        yield Bound(name, size, max(size - (used or 0), 0), limit.source)


def _commit(memory: Memory) -> Iterator[Bound]:
    """The commit limit binds only where the system refuses to promise more."""
    limit, charge = memory.commit_limit, memory.commit_charge
    if memory.commit_enforced.known and limit.known is not None and charge.known is not None:
        yield Bound("commit limit", limit.known, max(limit.known - charge.known, 0), limit.source)


def _slurm(surroundings: Environment) -> Iterator[Bound]:
    """What the job asked for: Slurm may enforce it by polling, where no control group shows it."""
    asked = surroundings.slurm_memory
    if asked.known is not None:
        yield Bound("Slurm's memory request", asked.known, asked.known, asked.source)
