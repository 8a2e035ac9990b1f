"""What the machine leaves to this process: memory, shared memory, cores."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache

from ..machine import HostMemoryReader, Machine, read_machine
from ..units import GIB

_SOMETHING = 4 * GIB  # where nothing can be read


@dataclass(frozen=True)
class HostResources:
    """What one process may use; its share, where torchrun started several on this machine.

    Attributes:
        memory: bytes of host memory that are left.
        bound: what limits them, in words: "RAM", "cgroup limit", "commit limit".
        shm: bytes that are free in `/dev/shm`; 0 where there is none.
        cores: cores that may be used, quotas counted.
        gpu: whether there is one that batches may go to.
    """

    memory: int
    bound: str
    shm: int
    cores: int
    gpu: bool


@cache
def _facts() -> tuple[Machine, HostMemoryReader]:
    """What is read once: asking the driver takes a moment."""
    return read_machine(), HostMemoryReader()


def read_resources() -> HostResources:
    """What is left now."""
    machine, gauge = _facts()
    now = gauge.read()
    rooms = {bound.name: bound.available for bound in reversed(machine.budget.bounds)}  # the tightest of a name stays
    if now.ram_available is not None:
        rooms["RAM"] = now.ram_available
    if now.cgroup_limit is not None and now.cgroup_used is not None:
        rooms["cgroup limit"] = max(now.cgroup_limit - now.cgroup_used, 0)
    bound = min(rooms, key=lambda name: rooms[name], default="a guess")
    ranks = local_ranks()
    return HostResources(
        memory=rooms.get(bound, _SOMETHING) // ranks,
        bound=bound,
        shm=max((now.shm_total or 0) - (now.shm_used or 0), 0) // ranks,
        cores=max(int(machine.cores.usable.known or os.cpu_count() or 1) // ranks, 1),
        gpu=bool(machine.gpus),
    )


def usable_cores() -> int:
    """Cores that this process may use, quotas and other ranks counted."""
    return read_resources().cores


def local_ranks() -> int:
    """Processes of one job on this machine, as torchrun tells each of them."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(int(text), 1) if text.isdigit() else 1
