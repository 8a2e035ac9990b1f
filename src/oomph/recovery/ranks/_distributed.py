"""Several ranks: a vote after each attempt, then the all-reduce of the gradients.

Under DDP the guard averages the gradients itself, after backward. Before that, all ranks vote over a gloo group whether
every one of them succeeded. So an out-of-memory error on one rank, even in the middle of its backward, makes all ranks
retry, and no collective hangs.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ...distributed import ControlGroup, NoControlGroup
from ...errors import RetriesExhausted, UsageError
from ...units import MIB
from .._caught_oom import CaughtOom, retry_on_oom
from .._config import GuardConfig
from ._sharded import CollectiveVotes, is_sharded

BUCKET_BYTES = 32 * MIB  # a larger gradient is reduced in place

_NO_SPARSE = "which the guard can't all-reduce"


class StepVote(NamedTuple):
    """The result of an attempt on all ranks."""

    oom: CaughtOom | None  # None if every rank succeeded
    samples: int  # of the largest batch
    signum: int | None  # of a signal that asked any rank to stop


class Ranks:
    """The ranks of a run: this class is a run of one process, its subclasses are several."""

    reduces_grads = False
    control_group: Any = None
    is_sharded = False  # each rank has a part of the weights, so that an evaluation is not split on one of them

    def __init__(self, model: nn.Module, control: NoControlGroup | None = None) -> None:
        self.model = model
        self.control = control or NoControlGroup()
        self.is_first = self.control.is_first
        # Not just the trainable parameters have gradients: here before the vote, on any rank after it.
        self._grads_differ = False

    def attempt(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of an attempt."""
        return contextlib.nullcontext()

    def agree_on_micro_batches(self, count: int, samples: int) -> int:
        """Return the number of micro-batches of this rank's batch."""
        del samples
        return count

    def vote(self, oom: CaughtOom | None, samples: int, signum: int | None) -> StepVote:
        """Combine the outcome of an attempt on all ranks."""
        votes = [int(oom is not None), samples, signum or 0, int(self._grads_differ)]
        failed, largest, stop_signal, grads_differ = self.control.max_over_ranks(votes)
        self._grads_differ = bool(grads_differ)
        return StepVote(CaughtOom(None) if failed and oom is None else oom, largest, stop_signal or None)

    def all_agree(self, agrees: bool) -> bool:  # noqa: FBT001  the only argument
        """Return True if all ranks agree."""
        return self.control.max_over_ranks([int(not agrees)]) == [0]

    def agree_to_stop(self, signum: int | None) -> int | None:
        """Return the signal that asked any rank to stop."""
        with self.control.busy():
            return self.control.max_over_ranks([signum or 0])[0] or None

    def raise_if_lost(self, error: BaseException) -> None:
        """Tell the other ranks of an error.

        Raises:
            RankLost: the error happened because another rank is lost.
        """
        lost = self.control.as_rank_lost(error)
        self.control.announce_failure(f"{type(error).__name__}: {error}")
        if lost is not None:
            raise lost from error

    def save_last(self, save: Callable[[], str | None], *, together: bool) -> str | None:
        """Save a run on the first rank before it ends, and return where."""
        path = None
        if self.is_first:
            self.control.stop_by_itself()
            path = save()
        if not together:
            return path
        with self.control.busy():  # the others wait, because torchrun kills the first rank once another one is gone
            is_saved = not self.all_agree(path is None)
        return path or ("the first rank's checkpoint" if is_saved else None)

    def prepare(self, parameters: Sequence[nn.Parameter]) -> None:
        """Allocate the memory of the all-reduce while an out-of-memory error can still be retried."""

    def reduce_grads(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the gradients over the ranks."""


class Ddp(Ranks):
    """DistributedDataParallel: the guard averages the gradients once all ranks have succeeded."""

    reduces_grads = True

    def __init__(self, model: DistributedDataParallel, config: GuardConfig) -> None:
        _reject_unsupported(model)
        control = ControlGroup(model.process_group, config.rank_timeout, config.recorder)
        super().__init__(model.module, control)
        self._collective = control.collective
        self._all_reduce = GradAllReduce(model.process_group, control.group)
        self._broadcasts_buffers = model.broadcast_buffers
        self._buffers: list[Tensor] = []

    def prepare(self, parameters: Sequence[nn.Parameter]) -> None:
        """Allocate the bucket of the all-reduce while an out-of-memory error can still be retried."""
        grads = [param.grad for param in parameters if param.grad is not None]
        if any(grad.layout is not torch.strided for grad in grads):
            raise UsageError(f"some gradients are sparse, {_NO_SPARSE}", "make them dense")
        # A frozen parameter may have a gradient of earlier batches.
        self._grads_differ = any((param.grad is None) == param.requires_grad for param in parameters)
        if self._broadcasts_buffers:  # read each time, because a forward may bind new ones
            self._buffers = [buffer.detach() for buffer in self.model.buffers()]
        self._all_reduce.allocate((*grads, *self._buffers))

    def reduce_grads(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the gradients and broadcast the first rank's buffers, as DDP does."""
        with self._collective():
            if self._grads_differ:
                self._all_reduce.fill_missing(parameters)
            self._all_reduce.average(parameters)
            self._all_reduce.broadcast_buffers(self._buffers)


class Fsdp(Ranks):
    """FSDP2: forward and backward contain collectives, so the ranks vote before each of them."""

    reduces_grads = True  # FSDP2 has averaged them in backward
    is_sharded = True

    def __init__(self, model: nn.Module, config: GuardConfig) -> None:
        control = ControlGroup(None, config.rank_timeout, config.recorder)
        super().__init__(model, control)
        self.control_group = control.group
        self._votes = CollectiveVotes(model, control)

    def attempt(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of an attempt, in which ranks vote before each collective."""
        return self._votes.attempt() if self._votes.is_supported else contextlib.nullcontext()

    def agree_on_micro_batches(self, count: int, samples: int) -> int:
        """Return the number of micro-batches: every rank takes part in the collectives of all of them.

        Raises:
            UsageError: this rank has fewer samples.
        """
        largest = self.control.max_over_ranks([count])[0]
        if largest > samples:
            raise UsageError(
                f"another rank needs {largest} micro-batches, and the batch of this one has {samples} samples",
                "give all ranks batches of the same size, such as with drop_last=True",
            )
        return largest

    def vote(self, oom: CaughtOom | None, samples: int, signum: int | None) -> StepVote:
        """Combine the outcome of an attempt on all ranks; stop if this torch can't repeat one."""
        if self._votes.is_supported:
            oom = self._votes.end_attempt(oom)
        elif oom is not None:
            raise RetriesExhausted(
                f"out of memory under FSDP2, which a torch before 2.13 can't retry ({oom.message})",
                "use smaller micro-batches from the start (micro_batch=), and resume from the last checkpoint",
            )
        return super().vote(oom, samples, signum)

    def save_last(self, save: Callable[[], str | None], *, together: bool) -> str | None:
        """Save a run on all ranks before it ends, if all of them end; each has its shard."""
        return save() if together else None


def connect_ranks(model: nn.Module, config: GuardConfig) -> Ranks:
    """Return the ranks that a model is trained on.

    Raises:
        UsageError: the model is wrapped in something that can't be guarded.
    """
    if isinstance(model, DistributedDataParallel):
        return Ddp(model, config)
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return Ranks(model)
    if any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()):
        raise UsageError("FSDP1 can't be guarded", "use FSDP2 (torch.distributed.fsdp.fully_shard) or DDP")
    if any(is_sharded(module) for module in model.modules()):
        return Fsdp(model, config)
    raise UsageError(
        "there are several ranks, but the model is not in DistributedDataParallel", "wrap it before you guard it"
    )


def _reject_unsupported(model: DistributedDataParallel) -> None:
    """Reject what a retry, or an all-reduce by the guard, would break."""
    if any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
        raise UsageError(
            "SyncBatchNorm exchanges statistics inside the forward, where a rank without memory would hang the others",
            "use BatchNorm or GroupNorm",
        )
    if getattr(model, "_comm_hooks", None):
        raise UsageError(
            "a communication hook is registered on the model, but the guard all-reduces gradients itself",
            "leave the hook out",
        )
    embeddings = [module for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))]
    if any(embedding.sparse for embedding in embeddings):
        raise UsageError(f"an embedding has sparse gradients, {_NO_SPARSE}", "use sparse=False")


class GradAllReduce:
    """Averages gradients and broadcasts buffers through one bucket, allocated beforehand."""

    def __init__(self, group: Any, control_group: Any) -> None:
        self._group, self._control_group = group, control_group
        self._world_size = dist.get_world_size(group)
        self._buckets: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def allocate(self, tensors: Sequence[Tensor]) -> None:
        """Allocate a bucket for each device and dtype that has none."""
        for tensor in tensors:
            key = (tensor.device, tensor.dtype)
            if key not in self._buckets:
                size = BUCKET_BYTES // tensor.element_size()
                self._buckets[key] = torch.empty(size, dtype=tensor.dtype, device=tensor.device)

    def fill_missing(self, parameters: Sequence[nn.Parameter]) -> None:
        """Give a zero gradient to parameters that only other ranks used; unused ones stay without."""
        missing = torch.tensor([int(param.grad is None) for param in parameters], dtype=torch.int32)
        dist.all_reduce(missing, dist.ReduceOp.SUM, group=self._control_group)
        for param, count in zip(parameters, missing.tolist(), strict=True):
            if param.grad is None and count < self._world_size:
                retry_on_oom(functools.partial(self._set_zero_grad, param))

    def _set_zero_grad(self, param: nn.Parameter) -> None:
        self.allocate([param])  # no other gradient may have its dtype
        param.grad = torch.zeros_like(param)

    def average(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the gradients."""
        self._through_buckets([param.grad for param in parameters if param.grad is not None], self._reduce)

    def _reduce(self, bucket: Tensor) -> None:
        dist.all_reduce(bucket, dist.ReduceOp.SUM, group=self._group)
        retry_on_oom(lambda: bucket.div_(self._world_size))  # if it raises, nothing was divided

    def broadcast_buffers(self, buffers: Sequence[Tensor]) -> None:
        """Send the first rank's buffers to every rank."""
        first = dist.get_global_rank(self._group, 0)
        self._through_buckets(buffers, lambda bucket: dist.broadcast(bucket, first, group=self._group))

    def _through_buckets(self, tensors: Sequence[Tensor], collective: Callable[[Tensor], object]) -> None:
        for chunk in _chunks(tensors):
            bucket = self._buckets[chunk[0].device, chunk[0].dtype]
            if chunk[0].numel() > bucket.numel():
                collective(_as_flat(chunk[0]))
            else:
                _through_bucket(chunk, bucket, collective)


def _through_bucket(chunk: list[Tensor], bucket: Tensor, collective: Callable[[Tensor], object]) -> None:
    sizes = [tensor.numel() for tensor in chunk]
    views: list[Tensor] = []

    def fill() -> None:
        parts = bucket[: sum(sizes)].split(sizes)
        views[:] = [part.view(tensor.shape) for part, tensor in zip(parts, chunk, strict=True)]
        torch._foreach_copy_(views, chunk)

    retry_on_oom(fill)
    collective(bucket[: sum(sizes)])
    retry_on_oom(lambda: torch._foreach_copy_(chunk, views))


def _as_flat(tensor: Tensor) -> Tensor:
    """Return a dense gradient in any memory format as the contiguous tensor that a collective needs."""
    return tensor if tensor.is_contiguous() else tensor.as_strided((tensor.numel(),), (1,))


def _chunks(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield tensors of one device and dtype that fit into a bucket together, in order."""
    chunks: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for tensor in tensors:
        key, capacity = (tensor.device, tensor.dtype), BUCKET_BYTES // tensor.element_size()
        chunk = chunks.setdefault(key, [])
        if tensor.numel() > capacity:
            yield [tensor]
        elif sum(member.numel() for member in chunk) + tensor.numel() > capacity:
            yield chunk
            chunks[key] = [tensor]
        else:
            chunk.append(tensor)
    yield from (chunk for chunk in chunks.values() if chunk)
