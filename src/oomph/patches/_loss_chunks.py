"""Cross entropy in chunks of rows, for large numbers of classes.

torch keeps the log-probabilities of all logits for backward, under autocast in float32, too, and needs as much again
there. Here, loss and gradient of some rows are computed at a time, and only the gradient is kept, in the dtype of the
logits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import UsageError
from ._patch import Patch

_MEAN, _SUM = 1, 2  # torch's numbers of reductions
_TYPES = (Tensor, FakeTensor)
_LOW_PRECISION = (torch.float16, torch.bfloat16)
_FP16_SCALE = 1024.0  # keeps gradients of unlikely classes above the smallest float16; exact, as a power of two


def apply_loss_chunks(chunks: int) -> Patch:
    """Let `torch.nn.functional.cross_entropy` and `nn.CrossEntropyLoss` work in this many chunks of rows.

    Loss and gradient are the same within rounding. Calls with `reduction="none"`, class probabilities or a subclass of
    Tensor run as before. A gradient of the gradient (`create_graph=True`) raises UsageError.
    """
    if chunks == 1:
        return Patch(lambda: None)
    # What both of them call: replacing `cross_entropy` itself would miss code that has imported it by name.
    functions: Any = torch._C._nn
    original = functions.cross_entropy_loss

    def cross_entropy_loss(
        logits: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        reduction: int = _MEAN,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ) -> Any:
        if reduction not in {_MEAN, _SUM} or not _has_chunks(logits, target, weight):
            return original(logits, target, weight, reduction, ignore_index, label_smoothing)
        call = _Call(target, weight, ignore_index, label_smoothing, chunks, is_mean=reduction == _MEAN)
        if torch.is_grad_enabled() and logits.requires_grad:
            return _ChunkedCrossEntropy.apply(logits, call)  # type: ignore[no-untyped-call]
        return call.loss_of(logits, *call.sums(logits, None))

    functions.cross_entropy_loss = cross_entropy_loss

    def undo() -> None:
        functions.cross_entropy_loss = original

    return Patch(undo)


def _has_chunks(logits: Tensor, target: Tensor, weight: Tensor | None) -> bool:
    """Return True for logits of several rows, with classes as targets, whose gradient is that of the logits alone."""
    if type(logits) not in _TYPES or logits.dim() < 2 or not logits.is_floating_point():  # noqa: PLR2004
        return False
    if target.is_floating_point() or target.shape != (logits.shape[0], *logits.shape[2:]) or not target.numel():
        return False
    if weight is None:
        return True
    return not weight.requires_grad and weight.shape == logits.shape[1:2] and logits.dtype is not torch.float16


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Cross entropy that computes the gradient of its logits in forward."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, call: _Call) -> Tensor:
        gradient = torch.empty_like(logits)
        loss, total = call.sums(logits, gradient)
        ctx.save_for_backward(gradient, total)
        ctx.call = call
        return call.loss_of(logits, loss, total)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise UsageError("the gradient of a loss in chunks can't be differentiated again", "set loss_chunks to 1")
        gradient, total = ctx.saved_tensors
        factor = grad.to(total.dtype)
        if ctx.call.is_mean:
            factor = torch.where(total == 0, 0.0, factor / total)  # a batch whose rows are all ignored
        if gradient.dtype is torch.float16:
            factor = factor / _FP16_SCALE
        if gradient.dtype not in _LOW_PRECISION:
            return gradient * factor, None
        result = torch.empty_like(gradient)
        for source, part in zip(ctx.call.parts(gradient), ctx.call.parts(result), strict=True):
            part.copy_(source * factor.reshape((1,) * source.dim()))  # in float32, as the factor is no scalar
        return result, None


@dataclass(frozen=True)
class _Call:
    """The arguments of a call beside its logits."""

    target: Tensor
    weight: Tensor | None
    ignore_index: int
    smoothing: float
    chunks: int
    is_mean: bool

    def parts(self, logits: Tensor) -> Iterator[Tensor]:
        """Yield the chunks of logits, along the longest dimension that isn't the classes."""
        dim = self._dim(logits)
        yield from logits.chunk(min(self.chunks, logits.shape[dim]), dim)

    @staticmethod
    def _dim(logits: Tensor) -> int:
        return max((dim for dim in range(logits.dim()) if dim != 1), key=lambda dim: logits.shape[dim])

    def loss_of(self, logits: Tensor, loss: Tensor, total: Tensor) -> Tensor:
        """Return the loss in the dtype that torch gives it."""
        loss = loss / total if self.is_mean else loss
        is_cast = torch.is_autocast_enabled(logits.device.type)
        return loss if is_cast and logits.dtype in _LOW_PRECISION else loss.to(logits.dtype)

    def sums(self, logits: Tensor, gradient: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the sum of losses and that of weights; write the gradient of the sum of losses, if there is room."""
        parts = list(self.parts(logits))
        targets = self.target.chunk(len(parts), max(self._dim(logits) - 1, 0))
        rooms = [None] * len(parts) if gradient is None else list(self.parts(gradient))
        sums = [self._sums_of_part(*part) for part in zip(parts, targets, rooms, strict=True)]
        losses, totals = zip(*sums, strict=True)
        return torch.stack(losses).sum(), torch.stack(totals).sum()

    def _sums_of_part(self, logits: Tensor, target: Tensor, gradient: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute a chunk. The target of a row is its class, and the rest of `smoothing` spread over all classes."""
        dtype = torch.float32 if logits.dtype in _LOW_PRECISION else logits.dtype
        log_probs = torch.log_softmax(logits, 1, dtype=dtype)
        ignored = (target == self.ignore_index).unsqueeze(1)
        labels = target.long().unsqueeze(1).masked_fill(ignored, 0)
        weight = logits.new_ones(1, dtype=dtype) if self.weight is None else self.weight.to(dtype)
        row_weight = weight[labels if self.weight is not None else torch.zeros_like(labels)].masked_fill_(ignored, 0)
        weight = weight.view(1, -1, *(1,) * (logits.dim() - 2))
        classes = logits.shape[1]
        spread = self.smoothing / classes
        loss = -(1 - self.smoothing) * (log_probs.gather(1, labels).masked_fill_(ignored, 0) * row_weight).sum()
        if spread:
            loss = loss - spread * (log_probs * weight).sum(1, keepdim=True).masked_fill_(ignored, 0).sum()
        if gradient is not None:
            scale = _FP16_SCALE if logits.dtype is torch.float16 else 1.0
            on_class = row_weight * ((1 - self.smoothing) * scale)
            probs = log_probs.exp_()
            if spread:
                on_all = (~ignored).to(dtype) * (spread * scale)
                all_weights = weight.sum() if self.weight is not None else classes
                probs.mul_(on_class + on_all * all_weights).addcmul_(on_all, weight, value=-1)
            else:
                probs.mul_(on_class)
            gradient.copy_(probs.scatter_add_(1, labels, -on_class))
        return loss, row_weight.sum()
