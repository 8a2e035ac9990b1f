"""The loss of a batch from those of its pieces, so that the gradient is that of the whole batch.

A plain mean is weighted by samples. A loss with a `normalizer` is given the whole batch's, and its pieces add up. A
`LossSum` tells its count only after the forward: pieces are divided by a first guess, and the gradients corrected at the
end by the ratio of guess and truth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError
from ._batch import move
from ._sum import LossSum

Number = Tensor | float
_DOUBLE = (torch.float64, torch.complex128)
_TINY = 512  # bytes: a block of the CUDA allocator


def normalizers_of(function: Callable[..., Any], batch: Any, device: torch.device) -> tuple[Any, ...]:
    """What a loss or a forward wants to know of the whole batch first, if anything."""
    count: Callable[[Any], Any] | None = getattr(function, "normalizer", None)
    return () if count is None else (move(count(batch), device),)


class Tally:
    """Adds up the losses of the pieces of one batch."""

    def __init__(self, samples: int, normalizer: tuple[Any, ...] = (), *, weight_by_samples: bool = False) -> None:
        self._samples, self._normaliser, self._by_samples = samples, normalizer, weight_by_samples
        self._shares: list[Tensor] = []
        self._weights: list[float] = []  # of the shares
        self._count: Number | None = None
        self._guess: Number | None = None

    def weigh(self, value: Any, samples: int) -> tuple[Tensor, float]:
        """What is to be differentiated for a piece, and the weight of that in the loss of the batch.

        Raises:
            UsageError: the value is no scalar tensor and no Sum.
        """
        if isinstance(value, LossSum):
            return self._weigh_sum(value, samples), 1.0
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = (
                f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            )
            raise UsageError(f"the loss is {got}", "return a scalar tensor, or an oomph.LossSum of a total and a count")
        weight = 1.0 if self._normaliser else samples / self._samples
        value = _alone(value)
        self._shares.append(value.detach())
        self._weights.append(weight)
        return value, weight

    def _weigh_sum(self, value: LossSum, samples: int) -> Tensor:
        count = value.count.detach() if isinstance(value.count, Tensor) else value.count
        if self._guess is None:
            whole = samples == self._samples
            self._guess = count if whole else _exact(_positive(count)) * (self._samples / samples)
        self._shares.append(_alone(value.total).detach())
        self._weights.append(1.0)
        self._count = count if self._count is None else self._count + count
        return value.total / self._guess

    @property
    def will_correct(self) -> bool:
        """Whether the gradients are known to be not yet what they should be."""
        return self._guess is not None

    def correct(self, gradients: Iterable[Tensor]) -> None:
        """Turn the guess of the count into the truth, in the gradients."""
        if self._guess is None or self._count is None or self._guess is self._count:
            return
        factor = self._guess / self._count
        if not isinstance(factor, Tensor):
            torch._foreach_mul_(list(gradients), factor)
            return
        single: list[Tensor] = []
        double: list[Tensor] = []
        for gradient in gradients:
            (double if gradient.dtype in _DOUBLE else single).append(gradient)
        for group, dtype in ((single, torch.float32), (double, torch.float64)):
            if group:
                torch._foreach_mul_(group, factor.to(dtype))

    @property
    def loss(self) -> Tensor:
        """The loss of the batch."""
        total = self._shares[0] if len(self._shares) == 1 else self._add_up()
        return total if self._count is None else total / self._count

    def _add_up(self) -> Tensor:
        """All shares, weighted and added at the end, by few kernels for all pieces."""
        shares, weights = self._shares, self._weights
        if any(share.shape for share in shares):
            shares = [share.reshape(()) for share in shares]
        if weights.count(1.0) == len(weights):
            return torch.stack(shares).sum()
        if weights.count(weights[0]) == len(weights):
            return torch.stack(shares).mean()
        return torch.stack(torch._foreach_mul(shares, weights)).sum()  # noqa: SLF001  there is no public name for it

    @property
    def weight(self) -> Number:
        """What the batch counts among others that are accumulated with it: what its loss was divided by."""
        if self._count is not None:
            return _exact(self._count)
        if self._normaliser and self.is_accumulable and not self._by_samples:
            divisor = self._normaliser[0]
            return _exact(divisor.detach().reshape(())) if isinstance(divisor, Tensor) else float(divisor)
        return float(self._samples)

    @property
    def is_accumulable(self) -> bool:
        """Whether it is known what the loss was divided by: of several normalizers, nobody knows which divides what."""
        if self._count is not None or not self._normaliser or self._by_samples:
            return True
        divisor = self._normaliser[0]
        return divisor.numel() == 1 if isinstance(divisor, Tensor) else isinstance(divisor, (int, float))


def _alone(value: Tensor) -> Tensor:
    """A loss without what came with it: torch's mean squared error is one number in memory for all the outputs."""
    return value.clone() if type(value) is Tensor and value.untyped_storage().nbytes() > _TINY else value


def _positive(count: Number) -> Number:
    """A count to divide by; a first piece without anything to count must not make infinities."""
    if isinstance(count, Tensor):
        return torch.where(count > 0, count, torch.ones_like(count))
    return count if count > 0 else 1.0


def _exact(count: Number) -> Number:
    """A count that can be divided without rounding it to single precision, as torch does with whole numbers."""
    if isinstance(count, Tensor) and not count.is_floating_point() and count.device.type != "mps":
        return count.double()
    return count


def shares(weight: Number, before: Number | None) -> tuple[Number, Number] | None:
    """The shares of a batch and of those that were accumulated before it; None if nobody knows what those count."""
    if before is None:
        return None
    whole = weight + before
    return weight / whole, before / whole


def combine(fresh: Tensor | None, aside: Tensor | None, parts: tuple[Number, Number] | None) -> Tensor | None:
    """The gradient of accumulated batches and one more, as if they were one batch; `aside` is not changed.

    Gradients of unknown origin (no shares) are added to, as backward does.
    """
    share, rest = parts or (1.0, 1.0)
    if fresh is None:
        return None if aside is None else aside * rest
    if parts is not None:
        fresh.mul_(share)
    if aside is not None:
        if not isinstance(rest, Tensor):
            fresh.add_(aside, alpha=rest)
        elif fresh.layout is torch.strided and aside.layout is torch.strided:
            fresh.addcmul_(aside, rest.to(fresh.dtype))
        else:
            fresh.add_(aside * rest)
    return fresh
