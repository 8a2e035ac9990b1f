"""Agreement between the ranks of a run, before anything collective can hang.

Under DDP, gradients are exchanged by the guard itself: during backward while all is calm, after it otherwise. In either
case all agree over a group of their own whether every one of them succeeded, and only then the averages count. So a
fault on one rank, also in the middle of its backward, is a fault on all of them, and all try again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ..errors import OomphError, RankLost, RetriesExhausted, UsageError
from ..failures import Family, classify_exception
from ._fault import Fault
from ._options import Options
from ._overlap import Overlap
from ._reduction import Reduction
from ._watchdog import Watchdog

NOTHING = contextlib.nullcontext()  # can be entered as often as wanted
_NO_SPARSE = ", which the guard can't exchange between ranks"
_FOREVER = dt.timedelta(days=7)  # waiting for a slow rank is no fault: the watchdog knows the living from the dead


class Agreement(NamedTuple):
    """What all ranks know after an attempt.

    Attributes:
        fault: what ran short, here or elsewhere; None if every rank succeeded.
        samples: of the largest batch.
        asked: the signal that asked one of them to end.
        again: whether the attempt must be made again, although nothing ran short.
        rest: whatever else was asked: of each number the largest.
    """

    fault: Fault | None
    samples: int
    asked: int | None
    again: bool = False
    rest: tuple[int, ...] = ()


class Ranks:
    """A run of one process: nobody to agree with."""

    is_alone = is_first = True
    exchanges = False

    def __init__(self, model: nn.Module) -> None:
        self.inner = model

    def busy(self) -> contextlib.AbstractContextManager[object]:
        """In a step, where ranks may wait for each other."""
        return NOTHING

    def watch(self, is_crowded: Callable[[], bool]) -> None:
        """How to find out whether memory is nearly full."""

    def agree(self, fault: Fault | None, samples: int, asked: int | None) -> Agreement:
        """Whether all ranks succeeded."""
        return Agreement(fault, samples, asked)

    def all_agree(self, yes: bool) -> bool:  # noqa: FBT001  the question is the argument
        """Whether all ranks say yes."""
        return yes

    def agree_to_end(self, asked: int | None) -> int | None:
        """The signal that asked any rank to end, when no step follows that would tell."""
        return asked

    def begin(self, *, update: bool) -> None:
        """An attempt begins, with an update at its end or without."""

    def announce(self, *, final: bool) -> None:
        """A piece begins; final: after its backward the gradients are what they will be."""

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
        model: the module itself.
        options: of the guard.
        group: the ranks that train together; all if None.
    """

    is_alone = False

    def __init__(self, model: nn.Module, options: Options, group: Any = None) -> None:
        super().__init__(model)
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.is_first = self.rank == 0
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        # On the group of the gradients, agreement would mix with an exchange that is still under way.
        self._group = dist.new_group(members, backend="gloo", timeout=_FOREVER)
        self._watchdog = Watchdog(self.rank, self.size, options.rank_timeout, options.recorder)
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
        return self._tell(fault, samples, asked, [])

    def _tell(self, fault: Fault | None, samples: int, asked: int | None, rest: list[int]) -> Agreement:
        told = self._largest([int(fault is not None), samples, asked or 0, *rest])
        if told[0] and fault is None:
            fault = Fault(None, elsewhere=True)
        return Agreement(fault, told[1], told[2] or None, rest=tuple(told[3:]))

    def all_agree(self, yes: bool) -> bool:  # noqa: FBT001  as above
        """Whether all ranks say yes."""
        return self._largest([int(not yes)])[0] == 0

    def agree_to_end(self, asked: int | None) -> int | None:
        """The signal that asked any rank to end."""
        with self.busy():
            return self._largest([asked or 0])[0] or None

    def _largest(self, values: list[int]) -> list[int]:
        told = torch.tensor(values, dtype=torch.int64)
        with self.collective():
            dist.all_reduce(told, dist.ReduceOp.MAX, group=self._group)
        return [int(value) for value in told]

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """Something that all ranks do together.

        Raises:
            RankLost: it failed, because one of them is gone.
        """
        try:
            yield
        except RuntimeError as error:
            lost = self.find_lost(error)
            if lost is None:
                raise
            raise lost from error

    def find_lost(self, error: BaseException) -> OomphError | None:
        """The reason for a collective that failed, as far as anybody told; None for any other error."""
        if isinstance(error, OomphError) or not _is_of_ranks(error):
            return None
        return RankLost(self._watchdog.reason(_first_line(error)), "look at the output of that rank, and resume")

    def leave(self, reason: str) -> None:
        """Tell the others why this rank ends."""
        self._watchdog.leave(reason)

    def close(self) -> None:
        """Stop the watchdog."""
        self._watchdog.close()


class DdpRanks(ManyRanks):
    """DistributedDataParallel: the guard exchanges gradients itself; they count once all ranks have succeeded."""

    exchanges = True

    def __init__(self, model: DistributedDataParallel, options: Options) -> None:
        _refuse(model)
        super().__init__(model.module, options, model.process_group)
        self.overlap = Overlap(model.process_group, wanted=options.overlap, calm=options.cooldown_steps)
        self._reduction = Reduction(model.process_group, self._group)
        self._buffers = [one for one in model.module.buffers() if model.broadcast_buffers]
        self._looked = False  # whether gradients were seen
        self._incomplete = 0  # whether parameters are without a gradient, here before agreement, anywhere after it

    def watch(self, is_crowded: Callable[[], bool]) -> None:
        """How to find out whether memory is nearly full."""
        self.overlap.is_crowded = is_crowded

    def begin(self, *, update: bool) -> None:
        """An attempt begins."""
        self.overlap.begin(update=update)

    def announce(self, *, final: bool) -> None:
        """A piece begins."""
        self.overlap.announce(final=final)

    def prepare(self, parameters: Sequence[nn.Parameter]) -> None:
        """Make room for the exchange, while a fault can still be recovered from."""
        if not self._looked:
            self._looked = True
            _refuse_sparse([one.grad for one in parameters if one.grad is not None])
        self._incomplete = int(any(one.grad is None for one in parameters))
        self._reduction.prepare(parameters if self.overlap.used is None else (), self._buffers)
        self.overlap.prepare(parameters)

    def agree(self, fault: Fault | None, samples: int, asked: int | None) -> Agreement:
        """Whether all ranks succeeded; what others wait for is sent before.

        Raises:
            RankLost: one of them is gone.
        """
        with self.collective():
            told = self._tell(fault, samples, asked, [self._incomplete, *self.overlap.vote()])
            self._incomplete = told.rest[0]
            again = self.overlap.hear(told.rest[1:], failed=told.fault is not None)
        return told._replace(again=again)

    def exchange(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average gradients; take the first rank's buffers, as DDP does.

        Raises:
            RankLost: a rank is gone.
        """
        with self.collective():
            if self._incomplete:
                self._reduction.complete(parameters)
            if self.overlap.used is None:
                self._reduction.average(parameters)
            self.overlap.finish()
            self._reduction.spread(self._buffers)

    def close(self) -> None:
        """Stop the watchdog, and let go of the buckets."""
        self.overlap.close()
        super().close()


class FsdpRanks(ManyRanks):
    """FSDP2: forward and backward are full of collectives, so a fault can't be tried again; all end, knowing why."""

    def __init__(self, model: nn.Module, options: Options) -> None:
        super().__init__(model, options)
        self.is_first = False  # a checkpoint of shards is written by all ranks or none

    def agree(self, fault: Fault | None, samples: int, asked: int | None) -> Agreement:
        """Whether all ranks succeeded.

        Raises:
            RetriesExhausted: this one didn't.
            RankLost: another one is gone.
        """
        if fault is not None:
            raise RetriesExhausted(
                f"memory ran short under FSDP2, whose ranks wait for each other inside a step ({fault.words})",
                "use smaller pieces from the start (pieces=), and resume from the last checkpoint",
            )
        return super().agree(fault, samples, asked)


def find_ranks(model: nn.Module, options: Options) -> Ranks:
    """The ranks that a model is trained on.

    Raises:
        UsageError: it is wrapped in something that can't be guarded.
    """
    if isinstance(model, DistributedDataParallel):
        return DdpRanks(model, options)
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return Ranks(model)
    names = {type(module).__name__ for module in model.modules()}
    if "FullyShardedDataParallel" in names:
        raise UsageError("FSDP1 is not guarded", "use FSDP2 (torch.distributed.fsdp.fully_shard), or DDP")
    if any(_is_sharded(module) for module in model.modules()):
        return FsdpRanks(model, options)
    raise UsageError(
        "several ranks are running, and the model is not in DistributedDataParallel", "wrap it before it is guarded"
    )


def _is_sharded(module: nn.Module) -> bool:
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)


def _refuse(model: DistributedDataParallel) -> None:
    """What a retry, or an exchange by the guard, would break.

    Raises:
        UsageError: there is something of that.
    """
    if any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
        raise UsageError(
            "SyncBatchNorm exchanges statistics inside the forward, where a rank that runs short would hang the others",
            "use BatchNorm or GroupNorm",
        )
    if getattr(model, "_comm_hooks", None):
        raise UsageError(
            "a communication hook is registered on the model, and the guard exchanges gradients itself",
            "leave the hook out",
        )
    sparse = [module for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))]
    if any(module.sparse for module in sparse):
        raise UsageError(f"an embedding has sparse gradients{_NO_SPARSE}", "use sparse=False")


def _refuse_sparse(gradients: Sequence[Tensor]) -> None:
    """Of layers that don't tell before.

    Raises:
        UsageError: there is such a gradient.
    """
    if any(one.layout is not torch.strided for one in gradients):
        raise UsageError(f"some gradients are sparse{_NO_SPARSE}", "make them dense")


def _is_of_ranks(error: BaseException) -> bool:
    """Whether an error is another rank's end, seen from here: by its words, or else by its type."""
    finding = classify_exception(error)
    return isinstance(error, dist.DistError) if finding is None else finding.cause.family is Family.RANKS


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__
