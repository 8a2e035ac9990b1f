"""Agreement between the ranks of a run, before anything collective can hang.

Under DDP, gradients are exchanged by the guard itself: each rank runs all its pieces alone, then all agree over a group
of their own whether every one of them succeeded, and only then gradients are averaged. So a fault on one rank, also in
the middle of its backward, is a fault on all of them, and all try again. What that costs is the overlap of exchange and
backward; `overlap=True` keeps the overlap, and ends the run on a fault.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import OomphError, OutOfRungs, RankLost, WrongCall
from ..failures import Family, recognise
from ._fault import Fault
from ._options import Options
from ._reduction import Reduction
from ._watchdog import Watchdog

_FOREVER = dt.timedelta(days=7)  # waiting for a slow rank is no fault: the watchdog knows the living from the dead


@dataclass(frozen=True)
class Agreement:
    """What all ranks know after an attempt.

    Attributes:
        fault: what ran short, here or elsewhere; None if every rank succeeded.
        samples: of the largest batch.
        asked: the signal that asked one of them to end.
    """

    fault: Fault | None
    samples: int
    asked: int | None


class Ranks:
    """A run of one process: nobody to agree with."""

    is_alone = is_first = True
    exchanges = False

    def __init__(self, model: nn.Module) -> None:
        self.inner = self.called = model

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """In a step, where ranks may wait for each other."""
        yield

    def agree(self, fault: Fault | None, samples: int, asked: int | None) -> Agreement:
        """Whether all ranks succeeded."""
        return Agreement(fault, samples, asked)

    def all_agree(self, yes: bool) -> bool:  # noqa: FBT001  the question is the argument
        """Whether all ranks say yes."""
        return yes

    def piece(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """What a piece runs in."""
        del last
        return contextlib.nullcontext()

    def prepare(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make room for the exchange, while a fault can still be recovered from."""

    def exchange(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the gradients over the ranks."""

    def find_lost(self, error: BaseException) -> OomphError | None:
        """The reason for an error that is only another rank's end, seen from here."""
        del error
        return None

    def leave(self, reason: str) -> None:
        """Tell the others why this rank ends."""

    def close(self) -> None:
        """Let go of everything."""


class ManyRanks(Ranks):
    """What all runs of several processes share: a group for agreement, and a watchdog.

    Args:
        model: as the user wrapped it.
        inner: the module inside.
        options: of the guard.
        group: the ranks that train together; all if None.
    """

    is_alone = False

    def __init__(self, model: nn.Module, inner: nn.Module, options: Options, group: Any = None) -> None:
        super().__init__(model)
        self.inner = inner
        self._incomplete = 0  # whether parameters are without a gradient, here before agreement, anywhere after it
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.is_first = self.rank == 0
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        # On the group of the gradients, agreement would mix with an exchange that is still under way.
        self._group = dist.new_group(members, backend="gloo", timeout=_FOREVER)
        self._watchdog = Watchdog(self.rank, self.size, options.patience, options.recorder)
        dist.barrier(self._group)
        self._watchdog.start()

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """In a step, where the watchdog may have to end this rank."""
        self._watchdog.busy = True
        try:
            yield
        finally:
            self._watchdog.busy = False

    def agree(self, fault: Fault | None, samples: int, asked: int | None) -> Agreement:
        """Whether all ranks succeeded.

        Raises:
            RankLost: one of them is gone.
        """
        told = self._largest([int(fault is not None), samples, asked or 0, self._incomplete])
        self._incomplete = told[3]
        if told[0] and fault is None:
            fault = Fault(None, elsewhere=True)
        return Agreement(fault, told[1], told[2] or None)

    def all_agree(self, yes: bool) -> bool:  # noqa: FBT001  as above
        """Whether all ranks say yes."""
        return self._largest([int(not yes)])[0] == 0

    def _largest(self, values: list[int]) -> list[int]:
        told = torch.tensor(values, dtype=torch.int64)
        try:
            dist.all_reduce(told, dist.ReduceOp.MAX, group=self._group)
        except RuntimeError as error:
            raise self.lost(error) from error
        return [int(value) for value in told]

    def find_lost(self, error: BaseException) -> OomphError | None:
        """The reason for a collective of the model's own that failed."""
        finding = recognise(error)
        return self.lost(error) if finding is not None and finding.cause.family is Family.RANKS else None

    def lost(self, error: BaseException) -> OomphError:
        """The reason for a collective that failed, as far as anybody told."""
        return RankLost(self._watchdog.reason(_first_line(error)), "look at the output of that rank, and resume")

    def leave(self, reason: str) -> None:
        """Tell the others why this rank ends."""
        self._watchdog.leave(reason)

    def close(self) -> None:
        """Stop the watchdog."""
        self._watchdog.close()


class DdpRanks(ManyRanks):
    """DistributedDataParallel: the guard exchanges gradients itself, once all ranks have succeeded."""

    def __init__(self, model: DistributedDataParallel, options: Options) -> None:
        _refuse(model, options)
        super().__init__(model, model.module, options, model.process_group)
        self._model, self._overlap = model, options.overlap
        self.called = model if options.overlap else model.module
        self.exchanges = not options.overlap
        self._reduction = Reduction(model.process_group, self._group)
        self._buffers = [one for one in model.module.buffers() if model.broadcast_buffers]

    def agree(self, fault: Fault | None, samples: int, asked: int | None) -> Agreement:
        """As for all, but with overlap the others are inside an exchange already.

        Raises:
            RankLost: one of them is gone.
            OutOfRungs: memory ran short, and overlap=True doesn't allow another attempt.
        """
        if self._overlap and fault is not None:
            raise OutOfRungs(
                f"memory ran short while gradients were being exchanged ({fault.words})",
                "leave overlap=True out, so that the guard can try again on all ranks",
            )
        return super().agree(fault, samples, asked)

    def piece(self, *, last: bool) -> contextlib.AbstractContextManager[object]:
        """With overlap, only the last piece exchanges."""
        return self._model.no_sync() if self._overlap and not last else contextlib.nullcontext()

    def prepare(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make room for the exchange."""
        if self.exchanges:
            self._incomplete = int(any(one.grad is None for one in parameters))
            self._reduction.prepare(parameters, self._buffers)

    def exchange(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average gradients; take the first rank's buffers, as DDP does.

        Raises:
            RankLost: a rank is gone.
        """
        try:
            if self._incomplete:
                self._reduction.complete(parameters)
            self._reduction.average(parameters)
            self._reduction.spread(self._buffers)
        except RuntimeError as error:
            raise self.lost(error) from error


class FsdpRanks(ManyRanks):
    """FSDP2: forward and backward are full of collectives, so a fault can't be tried again; all end, knowing why."""

    def __init__(self, model: nn.Module, options: Options) -> None:
        super().__init__(model, model, options)
        self.is_first = False  # a checkpoint of shards is written by all ranks or none

    def agree(self, fault: Fault | None, samples: int, asked: int | None) -> Agreement:
        """Whether all ranks succeeded.

        Raises:
            OutOfRungs: this one didn't.
            RankLost: another one is gone.
        """
        if fault is not None:
            raise OutOfRungs(
                f"memory ran short under FSDP2, whose ranks wait for each other inside a step ({fault.words})",
                "use smaller pieces from the start (pieces=), and resume from the last checkpoint",
            )
        return super().agree(fault, samples, asked)


def find_ranks(model: nn.Module, options: Options) -> Ranks:
    """The ranks that a model is trained on.

    Raises:
        WrongCall: it is wrapped in something that can't be guarded.
    """
    if isinstance(model, DistributedDataParallel):
        return DdpRanks(model, options)
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return Ranks(model)
    names = {type(module).__name__ for module in model.modules()}
    if "FullyShardedDataParallel" in names:
        raise WrongCall("FSDP1 is not guarded", "use FSDP2 (torch.distributed.fsdp.fully_shard), or DDP")
    if any(_is_sharded(module) for module in model.modules()):
        return FsdpRanks(model, options)
    raise WrongCall(
        "several ranks are running, and the model is not in DistributedDataParallel", "wrap it before it is guarded"
    )


def _is_sharded(module: nn.Module) -> bool:
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)


def _refuse(model: DistributedDataParallel, options: Options) -> None:
    """What a retry, or an exchange by the guard, would break.

    Raises:
        WrongCall: there is something of that.
    """
    if any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
        raise WrongCall(
            "SyncBatchNorm exchanges statistics inside the forward, where a rank that runs short would hang the others",
            "use BatchNorm or GroupNorm",
        )
    if getattr(model, "_comm_hooks", None):
        raise WrongCall(
            "a communication hook is registered on the model, and the guard exchanges gradients itself",
            "leave the hook out",
        )
    if options.overlap and getattr(model, "static_graph", False):
        raise WrongCall("static_graph=True doesn't go with overlap=True", "leave one of them out")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
