"""How many workers a DataLoader may have over any data set, so that the host holds it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..errors import CannotFit
from ..units import format_size
from ._host import LoaderMemory, LoaderWorkload, predict_loader_memory
from ._room import HostResources, read_resources
from ._survey import DatasetProfile

_MOST = 8
_AHEAD = 2


@dataclass(frozen=True)
class WorkerPlan:
    """How a DataLoader loads a data set on this machine.

    Attributes:
        workers: its num_workers.
        prefetch: its prefetch_factor; None without workers.
        pin: its pin_memory.
        memory: what that takes at most.
        why: what decided, in a sentence.
    """

    workers: int
    prefetch: int | None
    pin: bool
    memory: LoaderMemory
    why: str

    @property
    def arguments(self) -> dict[str, int | bool | None]:
        """The same as arguments for torch's DataLoader."""
        return {"num_workers": self.workers, "prefetch_factor": self.prefetch, "pin_memory": self.pin}


def plan_workers(found: DatasetProfile, room: HostResources | None = None) -> WorkerPlan:
    """Choose workers, batches ahead and pinned memory for a surveyed data set: the most that memory and cores allow.

    Args:
        found: what `profile_dataset` said; how workers are started, and what they decode, come from its `load`.
        room: what may be used; what this machine leaves, without.

    Raises:
        CannotFit: not even a batch at a time fits.
    """
    room = room or read_resources()
    most = min(room.cores, _MOST)
    tight = ""
    for workers in range(most, -1, -1):
        for ahead in (_AHEAD, 1) if workers else (_AHEAD,):
            for pin in (True, False) if room.gpu else (False,):
                load = replace(found.load, workers=workers, prefetch=ahead, pin=pin, budget=None)
                tight = _too_much(load, room)
                if not tight:
                    why = f"{room.cores} cores may be used" if workers == most else _why(load, most, room)
                    return WorkerPlan(workers, ahead if workers else None, pin, predict_loader_memory(load), why)
    raise CannotFit(f"a batch of {format_size(found.batch)} can't be loaded: {tight}", "make batches smaller")


def _too_much(load: LoaderWorkload, room: HostResources) -> str:
    """What is passed, in words; empty when it fits."""
    memory = predict_loader_memory(load)
    if memory.total - load.index > room.memory:
        return f"it takes {format_size(memory.total)}, and {room.bound} leaves {format_size(room.memory)}"
    if memory.shared > room.shm:
        return f"it takes {format_size(memory.shared)} of /dev/shm, which has {format_size(room.shm)}"
    return ""


def _why(load: LoaderWorkload, most: int, room: HostResources) -> str:
    next_up = replace(load, workers=min(load.workers + 1, most), prefetch=1, pin=False)
    return f"with {next_up.workers} workers {_too_much(next_up, room) or 'more would be pinned than fits'}"
