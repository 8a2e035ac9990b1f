"""A gloo group beside the one of the gradients, over which ranks vote and learn that another one is gone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from ..errors import OomphError
from ..monitor import Recorder
from ._collectives import NO_TIMEOUT, as_rank_lost, rank_lost_errors
from ._watchdog import Watchdog


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

    def stop_by_itself(self) -> None:
        """Let this rank finish what it does before it stops, even if another one is gone."""

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

    def collective(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that turns an error of a collective into RankLost if another rank is gone."""
        return rank_lost_errors(self._watchdog.reason)

    def as_rank_lost(self, error: BaseException) -> OomphError | None:
        """Return a RankLost error with the reason that the other rank gave, if the error is about another rank."""
        return as_rank_lost(error, self._watchdog.reason)

    def announce_failure(self, reason: str) -> None:
        """Tell the other ranks why this one stops."""
        self._watchdog.announce_failure(reason)

    def stop_by_itself(self) -> None:
        """Let this rank finish what it does before it stops, even if another one is gone."""
        self._watchdog.is_stopping = True

    def close(self) -> None:
        """Stop the heartbeats."""
        self._watchdog.close()
