"""A gloo group beside the one of the gradients, over which ranks vote and learn that another one is gone."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from ..errors import OomphError, RankLost
from ..failures import Family, classify_exception
from ..monitor import Recorder
from ._watchdog import Watchdog

NO_TIMEOUT = dt.timedelta(days=7)  # waiting for a slow rank is not an error; the watchdog finds dead ones


class NoControlGroup:
    """The control group of a single process."""

    is_distributed, is_first = False, True

    def busy(self) -> contextlib.AbstractContextManager[object]:
        """Return the context of a step, in which ranks may wait for each other."""
        return contextlib.nullcontext()

    def max_over_ranks(self, values: list[int]) -> list[int]:
        """Return the largest value of each position over all ranks."""
        return values

    def as_rank_lost(self, error: BaseException) -> OomphError | None:
        """Return a RankLost error if an error only says that another rank is gone."""
        del error
        return None

    def announce_failure(self, reason: str) -> None:
        """Tell the other ranks why this one stops."""

    def close(self) -> None:
        """Stop the heartbeats."""


class ControlGroup(NoControlGroup):
    """The control group of several processes.

    Votes have their own group, because on the gradients' group they would mix with a collective that is still running.

    Args:
        group: the ranks that train together; None for all.
        timeout: seconds without a heartbeat after which a rank counts as dead.
        recorder: records why this rank was ended.
    """

    is_distributed = True

    def __init__(self, group: Any, timeout: float, recorder: Recorder | None = None) -> None:
        rank, world_size = dist.get_rank(group), dist.get_world_size(group)
        self.is_first = rank == 0
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        self.group = dist.new_group(members, backend="gloo", timeout=NO_TIMEOUT)
        self._watchdog = Watchdog(rank, world_size, timeout, recorder)
        dist.barrier(self.group)
        self._watchdog.start()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Return the context of a step, in which the watchdog may have to end this rank."""
        self._watchdog.busy = True
        try:
            yield
        finally:
            self._watchdog.busy = False

    def max_over_ranks(self, values: list[int]) -> list[int]:
        """Return the largest value of each position over all ranks.

        Raises:
            RankLost: a rank is gone.
        """
        maxima = torch.tensor(values, dtype=torch.int64)
        with self.collective():
            dist.all_reduce(maxima, dist.ReduceOp.MAX, group=self.group)
        return [int(value) for value in maxima]

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """Turn an error of a collective into RankLost if another rank is gone."""
        try:
            yield
        except RuntimeError as error:
            lost = self.as_rank_lost(error)
            if lost is None:
                raise
            raise lost from error

    def as_rank_lost(self, error: BaseException) -> OomphError | None:
        """Return a RankLost error with the reason that the other rank gave, if the error is about another rank."""
        if isinstance(error, OomphError) or not is_rank_error(error):
            return None
        first_line = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        return RankLost(self._watchdog.reason(first_line), "look at the output of that rank, then resume")

    def announce_failure(self, reason: str) -> None:
        """Tell the other ranks why this one stops."""
        self._watchdog.announce_failure(reason)

    def close(self) -> None:
        """Stop the heartbeats."""
        self._watchdog.close()


def is_rank_error(error: BaseException) -> bool:
    """Return True if an error is about another rank, by its message or else by its type."""
    finding = classify_exception(error) if isinstance(error, Exception) else None
    return isinstance(error, dist.DistError) if finding is None else finding.cause.family is Family.RANKS
