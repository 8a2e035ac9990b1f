"""Validation: the same pieces and the same recovery, without gradients, each sample once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ._batch import move
from ._fault import Fault, free
from ._keepers import Buffers, Keeper, ObjectState
from ._piecework import Piecework
from ._randomness import Randomness
from ._transaction import Transaction


class Evaluation:
    """Runs a function over batches, cut as small as needed.

    The size of pieces is its own, because a forward without gradients takes another share of memory.
    """

    def __init__(self, work: Piecework, device: torch.device, keep: tuple[Any, ...]) -> None:
        self._work, self._device, self._keep = work, device, keep
        self._randomness = Randomness(device)
        self._micro: int | None = None

    def run(
        self, model: nn.Module, batch: Any, function: Callable[[nn.Module, Any], Any], results: list[Any]
    ) -> Fault | None:
        """Add the results of a batch; what ran short if not even one sample fits."""
        kept: list[Keeper] = [ObjectState(one) for one in self._keep]
        transaction = Transaction.of([self._randomness, Buffers(model), *kept])
        waiting = [batch]
        refused: dict[int, Fault] = {}
        while waiting:
            piece = waiting.pop(0)
            samples = self._work.samples(piece)
            if self._micro is not None and samples > self._micro:
                waiting = [*self._work.cut(piece, -(-samples // self._micro)), *waiting]
                continue
            with _evaluating(model):
                fault = transaction.run(lambda piece=piece: self._one(model, piece, function, results))  # type: ignore[misc]
            if fault is None:
                continue
            free(collect=bool(refused))
            if samples == 1 and refused.get(1) is not None:
                return fault
            refused[samples] = fault
            self._micro = max(1, samples // 2)
            waiting.insert(0, piece)
        return None

    def _one(self, model: nn.Module, piece: Any, function: Callable[[nn.Module, Any], Any], results: list[Any]) -> None:
        with torch.no_grad(), self._work.autocast():
            result = function(model, move(piece, self._device))
        results.append(result)


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """In eval mode; each module comes back to the mode that it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
