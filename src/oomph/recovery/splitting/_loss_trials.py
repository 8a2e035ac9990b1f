"""Trials of a loss on a few samples and their halves, which show what it is: a mean over samples or labels, or a sum.

Few samples, because the kernels for them round alike, and because a loss that weighs its samples shows it there. Where
all samples have the same loss, as in a model whose last layer starts with zeros, its values show nothing, but its
gradients do.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from ._micro_batches import MicroBatchRunner

Count = Callable[[Any], Any]

_PIECE_SAMPLES, _MAX_PIECES = 8, 16
_SMALLEST_PIECE = 2
_MAX_PARTS = 64  # of a batch whose labels are counted
_MAX_SHARE = 0.01  # of the difference between halves that a right rule may leave unexplained
_HALF_TOLERANCE = 1e-2  # of losses in half precision
_GRADIENT_TOLERANCE, _HALF_GRADIENT_TOLERANCE = 1e-3, 0.03  # relative
_MAX_PROBES, _MAX_PROBE_SIZE = 4, 1 << 22  # parameters whose gradients are compared, and elements of each


@dataclass(frozen=True)
class _Part:
    """A part of a batch with its loss, or with the gradient of its loss."""

    part: Any
    value: Tensor


@dataclass(frozen=True)
class _Piece:
    """A few samples and their two halves."""

    whole: _Part
    halves: Sequence[_Part]

    def error(self, counts: Sequence[float] | None) -> float:
        """Return the relative difference of the whole and its halves: their mean weighted by counts, or their sum."""
        total = sum(counts) if counts is not None else 1.0
        weights = [count / total if total else 0.0 for count in counts] if counts is not None else [1.0, 1.0]
        # The loss of a part without anything to count is NaN.
        terms = [half.value * weight for half, weight in zip(self.halves, weights, strict=True) if weight]
        error = float((sum(terms) - self.whole.value).norm()) / self._scale if terms else math.inf
        return error if math.isfinite(error) else math.inf

    @property
    def spread(self) -> float:
        """The relative difference between the halves."""
        spread = float((self.halves[0].value - self.halves[1].value).norm()) / self._scale
        return spread if math.isfinite(spread) else 0.0

    @property
    def _scale(self) -> float:
        """The size that differences are relative to; losses of both signs may cancel out in the whole."""
        sizes = [float(part.value.norm()) for part in (self.whole, *self.halves)]
        return max(1e-6, *filter(math.isfinite, sizes))


class RefutedCounts:
    """The ways to count labels that an earlier batch has shown to be wrong; another batch may not show it again."""

    def __init__(self) -> None:
        self._codes: set[object] = set()

    def allows(self, count: Count) -> bool:
        """Return False for a way that is known to be wrong."""
        return getattr(count, "__code__", None) not in self._codes

    def add(self, counts: Sequence[Count]) -> None:
        """Remember ways that are wrong."""
        self._codes |= {code for count in counts if (code := getattr(count, "__code__", None)) is not None}


class LossTrials:
    """The losses of pieces of a batch and of their halves.

    Args:
        runner: splits batches.
        batch: the batch.
        value: its loss.
        loss: returns the loss of a part, a scalar.
        tolerance: the relative difference that rounding can explain in a loss of many samples.
    """

    def __init__(
        self,
        runner: MicroBatchRunner,
        batch: Any,
        value: Tensor,
        loss: Callable[[Any], Tensor],
        tolerance: float,
    ) -> None:
        self._split, self._count_samples = runner.split, runner.count_samples
        self._parameters = tuple(runner.model.parameters())
        self._batch, self._value, self._loss, self._tolerance = batch, value.detach(), loss, tolerance
        self.pieces = self._tried(max(_PIECE_SAMPLES, math.ceil(self._count_samples(batch) / _MAX_PIECES)))

    def closest_count(self, counts: Sequence[Count]) -> tuple[Count | None, Sequence[Count]]:
        """Return the count by which the loss is a mean, None if there is none, and the counts that are refuted.

        Losses of an untrained model are nearly equal, so that a wrong count may be close: the closest one is right.
        """
        right: list[Count] = []
        refuted: list[Count] = []
        for pieces, limit in self._levels():
            errors = {count: self._mean_error(pieces, count) for count in right or counts}
            least = min(errors.values())
            if least > limit:
                if right or least > self._tolerance:
                    break
                continue
            near = max(2 * least, min(limit / 100, 1e-5))
            if self._tolerance < _HALF_TOLERANCE:  # otherwise the right one may be the one that rounding hit
                refuted += [count for count, error in errors.items() if error > max(2 * least, _rounding(pieces))]
            right = [count for count, error in errors.items() if error <= near]
            if len(right) == 1 or self._are_alike(right):
                break
        return (right[0] if right else None), refuted

    def _are_alike(self, counts: Sequence[Count]) -> bool:
        """Return True if counts weigh the samples of this batch in the same way, so that either is right for it."""
        parts = self._split(self._batch, min(self._count_samples(self._batch), _MAX_PARTS))
        shares = []
        for count in counts:
            numbers = torch.tensor([float(count(part)) for part in parts], dtype=torch.float64)
            shares.append(numbers / max(float(numbers.sum()), 1.0))
        return all(torch.allclose(share, shares[0]) for share in shares[1:])

    def is_sum(self) -> bool:
        """Return True if the loss is a sum over samples."""
        for pieces, limit in self._levels():
            error = max(piece.error(None) for piece in pieces)
            if error <= limit or error > self._tolerance:
                return error <= limit
        return False

    def describe(self, reduction: str) -> str:
        """Return the loss of the piece that shows most clearly that it is no mean, or no sum."""

        def error(piece: _Piece) -> float:
            return piece.error(self._samples(piece) if reduction == "mean" else None)

        piece = max(self.pieces, key=error)
        if self._is_flat(self.pieces):
            return "the same for all samples, but its gradient is not that of its parts"
        weights = self._samples(piece)
        halves = [float(half.value) for half in piece.halves]
        combined = sum(half * weight for half, weight in zip(halves, weights, strict=True)) / sum(weights)
        shown = combined if reduction == "mean" else sum(halves)
        samples = self._count_samples(piece.whole.part)
        return f"{float(piece.whole.value):.6g} for {samples} samples, but its halves give {shown:.6g}"

    def _levels(self) -> Iterator[tuple[Sequence[_Piece], float]]:
        """Yield pieces with the largest error of a right rule: of losses, or of gradients where losses are equal."""
        if self._is_flat(self.pieces) and self._gradients:
            yield self._gradients, self._gradient_tolerance
            return
        yield self.pieces, self._limit(self.pieces)
        if self._smallest and not self._is_flat(self._smallest):
            yield self._smallest, self._limit(self._smallest)

    def _limit(self, pieces: Sequence[_Piece]) -> float:
        """Return the largest relative error of a right rule."""
        share = _MAX_SHARE * max(piece.spread for piece in pieces)
        return max(self._tolerance if self._is_flat(pieces) else min(self._tolerance, share), _rounding(pieces))

    @property
    def _gradient_tolerance(self) -> float:
        return _HALF_GRADIENT_TOLERANCE if self._tolerance >= _HALF_TOLERANCE else _GRADIENT_TOLERANCE

    def _is_flat(self, pieces: Sequence[_Piece]) -> bool:
        """Return True if the halves are too much alike to tell a right rule from a wrong one."""
        return _MAX_SHARE * max(piece.spread for piece in pieces) < _rounding(pieces)

    def _mean_error(self, pieces: Sequence[_Piece], count: Count) -> float:
        return max(piece.error([float(count(half.part)) for half in piece.halves]) for piece in pieces)

    def _samples(self, piece: _Piece) -> list[float]:
        return [float(self._count_samples(half.part)) for half in piece.halves]

    @functools.cached_property
    def _smallest(self) -> Sequence[_Piece]:
        """Pieces of two samples: kernels for a few samples more may round in another way, a wrong rule stays wrong."""
        return self._tried(_SMALLEST_PIECE)

    def _tried(self, samples: int) -> Sequence[_Piece]:
        """Return pieces of so many samples, without those whose loss is NaN."""
        parts = max(1, math.ceil(self._count_samples(self._batch) / samples))
        if parts == 1:
            halves = [_Part(half, self._loss_of(half)) for half in self._split(self._batch, 2)]
            return [_Piece(_Part(self._batch, self._value), halves)]
        pieces = [self._piece(part, self._loss_of) for part in self._split(self._batch, parts)[:_MAX_PIECES]]
        return [piece for piece in pieces if piece is not None and bool(piece.whole.value.isfinite().all())]

    def _piece(self, part: Any, value: Callable[[Any], Tensor]) -> _Piece | None:
        if self._count_samples(part) < _SMALLEST_PIECE:
            return None
        return _Piece(_Part(part, value(part)), [_Part(half, value(half)) for half in self._split(part, 2)])

    def _loss_of(self, part: Any) -> Tensor:
        return self._loss(part).detach()

    # Gradients.

    @functools.cached_property
    def _gradients(self) -> Sequence[_Piece]:
        """The pieces with the gradients of their losses by a few parameters; none if these can't be computed here."""
        probes = self._probes
        if not probes or (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return ()  # wrappers of several ranks must not see half a backward
        try:
            with _only_trainable(self._parameters, probes), torch.enable_grad():
                pieces = [
                    self._piece(piece.whole.part, functools.partial(self._gradient, probes)) for piece in self.pieces
                ]
        except Exception:  # noqa: BLE001  such as a recurrent layer of cuDNN in evaluation mode
            return ()
        return [piece for piece in pieces if piece is not None and float(piece.whole.value.norm()) > 0]

    @property
    def _probes(self) -> Sequence[nn.Parameter]:
        """The last parameters: those of the head, whose gradients need no activations of other layers."""
        trainable = [param for param in self._parameters if param.requires_grad and param.numel() <= _MAX_PROBE_SIZE]
        return trainable[-_MAX_PROBES:]

    def _gradient(self, probes: Sequence[nn.Parameter], part: Any) -> Tensor:
        gradients = torch.autograd.grad(self._loss(part), probes, materialize_grads=True)
        return torch.cat([gradient.detach().float().flatten() for gradient in gradients])


def _rounding(pieces: Sequence[_Piece]) -> float:
    """Return the relative error of a loss that its type alone explains."""
    dtype = pieces[0].whole.value.dtype
    return 2 * torch.finfo(dtype).eps if dtype in {torch.float16, torch.bfloat16} else 16 * torch.finfo(dtype).eps


@contextlib.contextmanager
def _only_trainable(parameters: Sequence[nn.Parameter], probes: Sequence[nn.Parameter]) -> Iterator[None]:
    """Switch all other gradients off, so that no activations are kept for them."""
    kept = {id(param) for param in probes}
    others = [param for param in parameters if param.requires_grad and id(param) not in kept]
    for param in others:
        param.requires_grad = False
    try:
        yield
    finally:
        for param in others:
            param.requires_grad = True
