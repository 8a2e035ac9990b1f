"""Validation: micro-batches and retries as in training, without gradients, each sample once."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ..batch import BatchFormat, batch_format, move, write_versions
from ..errors import UsageError
from ..patches import autocast
from ._caught_oom import CaughtOom, DumpMemory, free_memory
from ._checks import reject_changed_batch
from ._memory import Memory
from ._retry_policy import RetryPolicy
from ._transaction import Transaction
from .snapshots import BufferSnapshot, ModuleAttributeSnapshot, ObjectSnapshot, RngSnapshot, Snapshot
from .splitting import MicroBatchRunner

_Function = Callable[[nn.Module, Any], Any]


class Evaluation:
    """Runs a function over batches, in micro-batches as small as needed.

    It has its own micro-batch size, because a forward without gradients needs less memory.

    Args:
        runner: splits batches.
        extra_state: objects that the function changes.
        memory: the memory of the device.
        cooldown_steps: batches without an out-of-memory error before larger micro-batches are tried.
        dump_memory: called when memory runs out, before anything is freed.
    """

    def __init__(
        self,
        runner: MicroBatchRunner,
        extra_state: tuple[Any, ...],
        memory: Memory,
        cooldown_steps: int,
        dump_memory: DumpMemory,
    ) -> None:
        self._runner, self._extra_state, self._memory = runner, extra_state, memory
        self._dump_memory = dump_memory
        self._policy = RetryPolicy(cooldown_steps=cooldown_steps, frees_cache=runner.device.type != "cpu")
        self._largest_batch = 0

    def run(
        self, model: nn.Module, batch: Any, function: _Function, results: list[Any], *, retries: bool = True
    ) -> CaughtOom | None:
        """Append the results of a batch; return the out-of-memory error if not even one sample fits, or at once."""
        models = [model, self._runner.model]
        extra: list[Snapshot] = [ObjectSnapshot(target, exclude=models) for target in self._extra_state]
        transaction = Transaction.of(
            [RngSnapshot(self._runner.device), BufferSnapshot(model), ModuleAttributeSnapshot(model), *extra],
            dump_memory=self._dump_memory,
        )
        batches = self._format_of(batch)
        samples = batches.count(batch)
        self._largest_batch = max(self._largest_batch, samples)
        queue, failures, size = deque([batch]), 0, samples
        while queue:
            part = queue.popleft()
            size = batches.count(part)
            micro_batches = self._policy.micro_batches(size)
            if micro_batches > 1:
                queue.extendleft(reversed(batches.split(part, micro_batches)))
                continue
            versions = write_versions(part)
            oom = self._try(transaction, model, functools.partial(self._evaluate, model, part, function, results))
            if oom is None:
                continue
            reject_changed_batch(part, versions)
            free_memory(collect=failures > 0)
            failures += 1
            if not retries:
                return oom
            smaller = self._split_smaller(part, batches, oom)
            if smaller is None:
                return oom
            queue.extendleft(reversed(smaller))
        if not self._policy.is_idle:
            self._policy.on_success(samples, lambda larger: self._memory.fits(larger / max(1, size)))
        return None

    def _try(self, transaction: Transaction, model: nn.Module, work: Callable[[], object]) -> CaughtOom | None:
        with self._memory.watch(model, reset_peak=self._policy.will_probe), _eval_mode(model):
            return transaction.run(work)

    def _format_of(self, batch: Any) -> BatchFormat:
        """Return how a batch is split: as in training, or by its structure if it has another form."""
        try:
            self._runner.count_samples(batch)
        except UsageError:
            return batch_format()
        return self._runner.batches

    def _split_smaller(self, part: Any, batches: BatchFormat, oom: CaughtOom) -> list[Any] | None:
        """Return what to try instead of a part that ran out of memory; None if nothing is left."""
        samples = batches.count(part)
        usual = min(self._largest_batch, self._policy.micro_batch or self._largest_batch)
        if 1 < samples < usual:  # the last, smaller batch of an epoch says nothing about full ones
            return list(batches.split(part, 2))
        fallback = self._policy.next_fallback(samples, may_be_fragmented=not oom.is_capacity)
        if fallback is not None and fallback.name == "collect_garbage":
            free_memory()
        return None if fallback is None else [part]

    def _evaluate(self, model: nn.Module, part: Any, function: _Function, results: list[Any]) -> None:
        device = self._runner.device
        with torch.no_grad(), autocast(self._runner.mode.precision, device.type):
            result = function(model, move(part, device))
        self._memory.check()
        results.append(result)


@contextlib.contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into eval mode, then each module back into its own mode."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
