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
from ._ladder import Ladder
from ._meter import Meter
from ._piecework import Piecework
from ._randomness import Randomness
from ._transaction import Transaction

_Function = Callable[[nn.Module, Any], Any]


class Evaluation:
    """Runs a function over batches, cut as small as needed.

    The size of pieces is its own, because a forward without gradients takes another share of memory.

    Args:
        work: cuts batches.
        keep: objects that the function changes.
        meter: of the memory.
        calm: batches without a fault after which larger pieces are tried.
    """

    def __init__(self, work: Piecework, keep: tuple[Any, ...], meter: Meter, calm: int) -> None:
        self._work, self._device, self._keep, self._meter = work, work.device, keep, meter
        self._randomness = Randomness(work.device)
        self._ladder = Ladder(limit=None, calm=calm, lasts=(), frees=work.device.type != "cpu")
        self._most = 0  # samples of the largest batch

    def run(self, model: nn.Module, batch: Any, function: _Function, results: list[Any]) -> Fault | None:
        """Add the results of a batch; what ran short if not even one sample fits."""
        kept: list[Keeper] = [ObjectState(one, but=[model]) for one in self._keep]
        transaction = Transaction.of([self._randomness, Buffers(model), *kept])
        whole = samples = self._work.samples(batch)
        self._most = max(self._most, whole)
        waiting = [batch]
        faults = 0
        while waiting:
            piece = waiting.pop(0)
            samples = self._work.samples(piece)
            pieces = self._ladder.pieces(samples)
            if pieces > 1:
                waiting = [*self._work.cut(piece, pieces), *waiting]
                continue
            fault = self._attempt(transaction, model, lambda piece=piece: self._one(model, piece, function, results))  # type: ignore[misc]
            if fault is None:
                continue
            free(collect=faults > 0)
            faults += 1
            smaller = self._smaller(piece, samples, fault)
            if smaller is None:
                return fault
            waiting = [*smaller, *waiting]
        self._ladder.settle(whole, lambda size: self._meter.fits(size / max(1, samples)))
        return None

    def _attempt(self, transaction: Transaction, model: nn.Module, work: Callable[[], object]) -> Fault | None:
        closely = self._ladder.is_deciding
        self._meter.begin(model, closely=closely)
        try:
            with _evaluating(model):
                return transaction.run(work)
        finally:
            self._meter.end(closely=closely)

    def _smaller(self, piece: Any, samples: int, fault: Fault) -> list[Any] | None:
        """What to try instead of a piece that ran short; None if there is nothing."""
        usual = self._most if self._ladder.micro is None else min(self._most, self._ladder.micro)
        if 1 < samples < usual:
            return list(self._work.cut(piece, 2))  # the rest of an epoch says nothing of whole batches
        rung = self._ladder.climb(samples, holes=not fault.is_full)
        if rung is not None and rung.name == "collect":
            free()
        return None if rung is None else [piece]

    def _one(self, model: nn.Module, piece: Any, function: _Function, results: list[Any]) -> None:
        with torch.no_grad(), self._work.autocast():
            result = function(model, move(piece, self._device))
        self._meter.look()
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
