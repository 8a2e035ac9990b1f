"""Combine the losses of micro-batches so that the gradient is that of the whole batch.

A mean is weighted by samples. A loss with a `normalizer` receives that of the whole batch, so its micro-batches add up.
A `LossSum` reports its count only after the forward: micro-batches are divided by an estimate, and the gradients are
rescaled at the end by the ratio of estimate and true count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UsageError
from ...losses import LossSum, Number

_FLOAT64_DTYPES = (torch.float64, torch.complex128)
_ALLOCATOR_BLOCK_BYTES = 512  # the smallest block of the CUDA allocator


class LossAccumulator:
    """Weights and adds up the losses of one batch's micro-batches.

    Args:
        samples: samples of the whole batch.
        normalizer: the extra argument that the loss received, if any.
        weight_by_samples: accumulate this batch with others by samples, not by what its loss was divided by.
        reduction: "mean" for losses that are means over samples, "sum" for losses that add up.
    """

    def __init__(
        self,
        samples: int,
        normalizer: tuple[Any, ...] = (),
        *,
        weight_by_samples: bool = False,
        reduction: str = "mean",
    ) -> None:
        self._samples, self._normalizer, self._weight_by_samples = samples, normalizer, weight_by_samples
        self.adds_up = reduction == "sum"  # batches that are accumulated add up, too
        self._terms: list[Tensor] = []
        self._weights: list[float] = []
        self._count: Number | None = None
        self._min_count = 0.0
        self._estimated_count: Number | None = None

    def add(self, value: Any, samples: int) -> Tensor:
        """Add the loss of a micro-batch and return the weighted loss to differentiate.

        Raises:
            UsageError: the value is neither a scalar tensor nor a LossSum.
        """
        if self._terms and isinstance(value, LossSum) != (self._count is not None):
            raise UsageError(
                "the loss is an oomph.LossSum for some micro-batches and a tensor for others", "return one of the two"
            )
        if isinstance(value, LossSum):
            return self._add_sum(value, samples)
        if not isinstance(value, Tensor) or value.numel() != 1:
            is_tensor = isinstance(value, Tensor)
            got = f"a tensor of shape {tuple(value.shape)}" if is_tensor else f"a {type(value).__name__}"
            raise UsageError(f"the loss is {got}", "return a scalar tensor, or an oomph.LossSum of a total and a count")
        weight = 1.0 if self._normalizer or self.adds_up else samples / self._samples
        loss = _without_large_storage(value)
        self._terms.append(loss.detach())
        self._weights.append(weight)
        return loss if weight == 1.0 else loss * weight

    def _add_sum(self, value: LossSum, samples: int) -> Tensor:
        count = value.count.detach() if isinstance(value.count, Tensor) else value.count
        self._terms.append(_without_large_storage(value.total).detach())
        self._weights.append(1.0)
        self._min_count = value.min_count
        self._count = count if self._count is None else self._count + count
        if samples == self._samples:
            return value.total / _positive(count, self._min_count)
        if self._estimated_count is None:
            self._estimated_count = _to_float(_positive(count)) * (self._samples / samples)
        return value.total / self._estimated_count

    def rescale_grads(self, parameters: Iterable[nn.Parameter], scale: float = 1.0) -> None:
        """Replace the estimated count by the true one in the gradients, and multiply them by a factor."""
        estimate, count = self._estimated_count, self._count
        factor: Number = scale
        if estimate is not None and count is not None:
            factor = estimate / _positive(count, self._min_count) * scale
        elif scale == 1:
            return
        grads = [param.grad for param in parameters if param.grad is not None]
        if not isinstance(factor, Tensor):
            torch._foreach_mul_(grads, factor)
            return
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for grad in grads:
            dtype = torch.float64 if grad.dtype in _FLOAT64_DTYPES else torch.float32
            by_dtype.setdefault(dtype, []).append(grad)
        for dtype, group in by_dtype.items():
            torch._foreach_mul_(group, factor.to(dtype))

    @property
    def loss(self) -> Tensor:
        """The loss of the whole batch."""
        if len(self._terms) == 1:
            total = self._terms[0]
        else:
            terms = [term.reshape(()) for term in self._terms]
            total = torch.stack(torch._foreach_mul(terms, self._weights)).sum()  # noqa: SLF001  no public name
        return total if self._count is None else total / _positive(self._count, self._min_count)

    @property
    def weight(self) -> Number:
        """The weight of this batch among others accumulated with it: the divisor of its loss."""
        if self._count is not None:
            return _to_float(self._count if not self._min_count else _positive(self._count, self._min_count))
        if self._normalizer and self.has_known_divisor and not self._weight_by_samples:
            divisor = self._normalizer[0]
            return _to_float(divisor.detach().reshape(())) if isinstance(divisor, Tensor) else float(divisor)
        return float(self._samples)

    @property
    def has_known_divisor(self) -> bool:
        """False if the loss has several normalizers: it is unknown which of them divides what."""
        if self._count is not None or not self._normalizer or self._weight_by_samples:
            return True
        divisor = self._normalizer[0]
        return divisor.numel() == 1 if isinstance(divisor, Tensor) else isinstance(divisor, (int, float))


def mean_as_sum(mean: Tensor, count: Tensor) -> LossSum:
    """Return a mean with its count as a sum; a mean of nothing, which is NaN, counts nothing."""
    mean = mean if mean.dtype == torch.float64 else mean.float()
    return LossSum(torch.where(count > 0, mean * count, torch.zeros_like(mean)), count)


def _without_large_storage(value: Tensor) -> Tensor:
    """Copy a scalar that is a view of a large tensor: torch's mse_loss returns one, which would stay allocated."""
    is_view = type(value) is Tensor and value.untyped_storage().nbytes() > _ALLOCATOR_BLOCK_BYTES
    return value.clone() if is_view else value


def _positive(count: Number, smallest: float = 0.0) -> Number:
    """Replace a count of zero by one: a batch without anything to count has no loss, instead of a NaN."""
    if isinstance(count, Tensor):
        return count.clamp(min=smallest) if smallest else torch.where(count > 0, count, torch.ones_like(count))
    return max(count, smallest) if smallest or count > 0 else 1.0


def _to_float(count: Number) -> Number:
    """Convert an integer tensor to float64: torch would divide it in single precision."""
    if isinstance(count, Tensor) and not count.is_floating_point() and count.device.type != "mps":
        return count.double()
    return count


def accumulation_weights(weight: Number, pending: Number | None) -> tuple[Number, Number] | None:
    """Return the fractions of a batch and of the batches accumulated before it; None if those have no weight."""
    if pending is None:
        return None
    total = _positive(weight + pending)
    return weight / total, pending / total


def merge_grads(grad: Tensor | None, stashed: Tensor | None, weights: tuple[Number, Number] | None) -> Tensor | None:
    """Merge a batch's gradient with the stashed one of earlier batches, as if they were one batch.

    Without weights the stashed gradient is of unknown origin and is added to, as backward does. `stashed` is unchanged.
    """
    new_weight, stashed_weight = weights or (1.0, 1.0)
    if grad is None:
        return None if stashed is None else (stashed * stashed_weight).to(stashed.dtype)
    if weights is not None:
        grad.mul_(new_weight)
    if stashed is not None:
        if not isinstance(stashed_weight, Tensor):
            grad.add_(stashed, alpha=stashed_weight)
        elif grad.layout is torch.strided and stashed.layout is torch.strided:
            grad.addcmul_(stashed, stashed_weight.to(grad.dtype))
        else:
            grad.add_(stashed * stashed_weight)
    return grad
