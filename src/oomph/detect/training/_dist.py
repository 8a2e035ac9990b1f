"""The processes that train together under torchrun, and what they tell each other outside of the guard's steps."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from ...errors import OomphError, RankLost, UsageError
from .._device import settle_allocator

T = TypeVar("T")
_FOREVER = dt.timedelta(days=7)  # waiting for a slow rank is no fault; the guard's watchdog and torchrun know the dead


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, and which of them this one is.

    Attributes:
        rank: this one, counted from 0.
        ranks: how many there are.
        local: its number on this machine, which is that of its GPU.
        beside: how many there are on this machine.
    """

    rank: int = 0
    ranks: int = 1
    local: int = 0
    beside: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that tells and writes."""
        return self.rank == 0

    @property
    def are_several(self) -> bool:
        """Whether there is anybody else."""
        return self.ranks > 1

    def share(self, batch: int) -> int:
        """The images of a batch that one rank takes.

        Raises:
            UsageError: it can't be shared out evenly.
        """
        if batch > 0 and batch % self.ranks:
            fix = f"give a multiple of {self.ranks}"
            raise UsageError(f"a batch of {batch} can't be shared out evenly to {self.ranks} ranks", fix)
        return batch // self.ranks if batch > 0 else batch

    def device_name(self, asked: str | None) -> str | None:
        """The device of this rank: the GPU of its number on this machine, or the CPU.

        Raises:
            UsageError: one GPU was asked for, or there are fewer GPUs than ranks.
        """
        if not self.are_several:
            return asked
        if asked not in {None, "cpu", "cuda"}:
            raise UsageError(
                f"--device names one GPU ({asked}), and there are {self.ranks} ranks",
                "leave it out, and choose GPUs by CUDA_VISIBLE_DEVICES: each rank takes the one of its number",
            )
        if asked == "cpu" or not torch.cuda.is_available():
            return "cpu"
        if self.local >= torch.cuda.device_count():
            raise UsageError(
                f"there are {self.beside} ranks on this machine, and torch sees {torch.cuda.device_count()} GPUs",
                "start as many ranks as there are GPUs, or train with --device cpu",
            )
        return f"cuda:{self.local}"

    def once(self, work: Callable[[], T]) -> T:
        """What the first rank makes, for all.

        Raises:
            RankLost: it could not; it raises its own error.
        """
        told: list[T] = self.everywhere(work if self.is_first else _nothing)
        return told[0]

    def everywhere(self, work: Callable[[], T]) -> list[T]:
        """What each of the ranks makes, for all.

        Raises:
            RankLost: one of them could not, or is gone; it raises its own error.
        """
        if not self.are_several:
            return [work()]
        made: Any = None
        error: OomphError | None = None
        try:
            made = work()
        except OomphError as raised:
            error = raised
        told: list[Any] = [None] * self.ranks
        mine = (made, None) if error is None else (None, (error.why, error.fix))
        _together(lambda: dist.all_gather_object(told, mine))
        if error is not None:
            raise error
        for rank, (_, reason) in enumerate(told):
            if reason is not None:
                raise RankLost(f"rank {rank} ended: {reason[0]}", reason[1])
        return [value for value, _ in told]

    def collect(self, value: T) -> list[T] | None:
        """The values of all ranks, on the first one; None elsewhere.

        Raises:
            RankLost: one of them is gone.
        """
        if not self.are_several:
            return [value]
        told: list[Any] | None = [None] * self.ranks if self.is_first else None
        _together(lambda: dist.gather_object(value, told, dst=0))
        return told

    def summed(self, counts: Sequence[int]) -> list[int]:
        """Counts, added up over the ranks.

        Raises:
            RankLost: one of them is gone.
        """
        if not self.are_several:
            return list(counts)
        told = torch.tensor(counts, dtype=torch.int64)
        _together(lambda: dist.all_reduce(told))
        return [int(value) for value in told]


ALONE = Ranks()


def _nothing() -> Any:
    """What ranks other than the first contribute."""


def _together(collective: Callable[[], object]) -> None:
    try:
        collective()
    except RuntimeError as error:
        words = re.sub(r"^\[[^]]*\]\s*", "", str(error).strip()).partition("\n")[0].partition(". ")[0]  # no file names
        raise RankLost(f"another rank is gone ({words})", "look at the output of that rank, and resume") from error


@contextlib.contextmanager
def join_ranks(device: str | None) -> Iterator[Ranks]:
    """The ranks that torchrun has started, able to talk to each other while in here; without torchrun there is one.

    Args:
        device: as it was asked for: "cpu", or None for the GPU of each rank where there are any.

    Raises:
        UsageError: there are fewer GPUs than ranks, or only one was asked for.
    """
    ranks = _started(os.environ)
    if not ranks.are_several:
        yield ranks
        return
    name = ranks.device_name(device)
    if name != "cpu":
        settle_allocator(torch.device("cuda"))  # after the next line it is too late
        torch.cuda.set_device(name)
    # Objects and counts always go over gloo, so that nobody waits for a GPU to tell them.
    dist.init_process_group("gloo" if name == "cpu" else "cpu:gloo,cuda:nccl", timeout=_FOREVER)
    try:
        yield ranks
    finally:
        dist.destroy_process_group()


def _started(environment: Any) -> Ranks:
    """What torchrun says in the environment.

    Raises:
        UsageError: it says half of it.
    """
    if int(environment.get("WORLD_SIZE", 1)) < 2 or "RANK" not in environment:  # noqa: PLR2004  one is alone
        return ALONE
    try:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        return Ranks(*(int(environment[name]) for name in names))
    except KeyError as error:
        raise UsageError(f"RANK is set and {error} is not", "start the ranks with torchrun") from None
