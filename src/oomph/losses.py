"""Losses that can be split: totals with a count, torch's own losses in that form, and any loss in two passes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  the field's usual name

from .batch import join_outputs, map_tensors, tensors_in

Number = Tensor | float

_HALF_DTYPES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class LossSum:
    """A loss that is a total divided by a count known only after the forward: non-padding tokens, positive anchors.

    The guard adds up totals and counts over the micro-batches; the gradient is that of the whole total divided by the
    whole count.

    Attributes:
        total: the sum of the losses, a differentiable scalar.
        count: how many were summed: a number, or a tensor without gradient.
        min_count: the smallest divisor of a whole batch: 1 for a loss that is divided by max(count, 1).
    """

    total: Tensor
    count: Number
    min_count: float = 0.0


@dataclass(frozen=True)
class TorchLoss:
    """One of torch's losses with its options, in a form that can be split.

    Attributes:
        name: its class in `torch.nn`.
        total: the same loss with `reduction="sum"`.
        options: its other options: weight, ignore_index and so on.
        reduction: "mean", "sum" or "batchmean".
    """

    name: str
    total: Callable[[Tensor, Tensor], Tensor]
    options: dict[str, Any]
    reduction: str

    @property
    def has_elementwise_weights(self) -> bool:
        """True if it has weights that are broadcast to its outputs, so that they may lie along the batch."""
        weights = [self.options.get("weight"), self.options.get("pos_weight")]
        return self.name in _ELEMENTWISE_WEIGHTS and any(weight is not None for weight in weights)

    def can_split(self, outputs: Any, targets: Any) -> bool:
        """Return False if the loss has an option that lies along the batch, such as a weight per sample."""
        if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or outputs.dim() == 0:
            return False
        if self.name not in _ELEMENTWISE_WEIGHTS:
            return targets.dim() > 0
        weights = (self.options.get("weight"), self.options.get("pos_weight"))
        # Broadcasting aligns the last dimensions, so a weight of fewer dimensions doesn't reach the batch's.
        return all(weight is None or weight.dim() < outputs.dim() or weight.shape[0] == 1 for weight in weights)

    def count_of(self, targets: Any) -> Number | None:
        """Return the divisor of a whole batch if its targets tell it without the outputs."""
        if self.reduction == "sum" or not self._has_classes(targets):
            return None
        count = self._class_count(targets)
        count = torch.where(count > 0, count, torch.ones_like(count))  # without targets there is no loss, and no NaN
        return float(count) if count.device.type == "cpu" else count

    def sum(self, outputs: Tensor, targets: Tensor) -> LossSum:
        """Return the total of a micro-batch and its divisor."""
        return LossSum(self.total_of(outputs, targets), self._count(outputs, targets))

    def total_of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the total of a micro-batch."""
        if outputs.dtype in _HALF_DTYPES:  # a sum of many terms would overflow or be rounded to 8 bits
            outputs = outputs.float()
            targets = targets.float() if targets.is_floating_point() else targets
        return self.total(outputs, targets)

    def _count(self, outputs: Tensor, targets: Tensor) -> Number:
        if self._has_classes(targets):
            return self._class_count(targets)
        if self.reduction == "batchmean" or self.name in _PER_SAMPLE:
            return float(outputs.shape[0])
        if self.name == "MultiLabelSoftMarginLoss":
            return outputs.numel() / outputs.shape[-1]
        if self.name in _OF_CLASSES:  # class probabilities
            return targets.numel() / targets.shape[1 if targets.dim() > 1 else 0]
        return float(torch.broadcast_shapes(outputs.shape, targets.shape).numel())

    def _has_classes(self, targets: Any) -> bool:
        return self.name in _OF_CLASSES and isinstance(targets, Tensor) and not targets.is_floating_point()

    def _class_count(self, targets: Tensor) -> Tensor:
        valid: Tensor = targets != self.options.get("ignore_index", -100)
        weight: Tensor | None = self.options.get("weight")
        if weight is None:
            return valid.sum()
        count: Tensor = weight.to(targets.device)[targets.where(valid, 0)].where(valid, 0).sum()
        return count


class OutputParts:
    """The outputs of micro-batches, for a loss over the whole batch.

    In a first pass without gradients each micro-batch adds its outputs. The loss of `joined()` is differentiated once.
    In a second pass each micro-batch runs again, and backward from its outputs with its part of that gradient.
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._sizes: list[int] = []

    def add(self, outputs: Any, samples: int) -> None:
        """Add the outputs of a micro-batch."""
        self._parts.append(map_tensors(outputs, _as_leaf))
        self._sizes.append(samples)

    def joined(self) -> Any:
        """Return the outputs of the whole batch.

        Raises:
            UsageError: an output does not lie along the batch and is not the same for all micro-batches.
        """
        return join_outputs(self._parts, self._sizes)

    def take_grads(self) -> list[list[Tensor | None]]:
        """Return the gradients of each micro-batch's outputs, and drop the outputs."""
        grads = [[leaf.grad for leaf in tensors_in([part])] for part in self._parts]
        self._parts = []
        return grads


def outputs_with_grads(outputs: Any, grads: list[Tensor | None]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs of a second pass that can be differentiated, and their gradients from the first one."""
    pairs = [
        (tensor, grad)
        for tensor, grad in zip(tensors_in([outputs]), grads, strict=True)
        if grad is not None and tensor.requires_grad
    ]
    return [tensor for tensor, _ in pairs], [grad for _, grad in pairs]


def _as_leaf(tensor: Tensor) -> Tensor:
    leaf = tensor.detach()
    return leaf.requires_grad_() if leaf.is_floating_point() or leaf.is_complex() else leaf


def torch_loss(loss: Any) -> TorchLoss | None:
    """Return one of torch's own losses in a form that can be split; None for any other function.

    Modules, functions of `torch.nn.functional` and partial applications of those are recognized.
    """
    if type(loss) in _MODULES and not _is_customized(loss):
        options = {name: getattr(loss, name) for name in (*_OPTIONS, "reduction") if hasattr(loss, name)}
        name = type(loss).__name__
        summed = functools.partial(_summed_module, loss)
    else:
        function, options = loss, {}
        if isinstance(loss, functools.partial) and not loss.args:
            function, options = loss.func, dict(loss.keywords)
        if not callable(function) or function not in _FUNCTIONS:
            return None
        name = _FUNCTIONS[function]
        summed = functools.partial(loss, reduction="sum")
    if options.get("size_average") is not None or options.get("reduce") is not None:  # deprecated
        return None
    weights = [options.get("weight"), options.get("pos_weight")]
    if any(weight is not None and weight.dtype in _HALF_DTYPES for weight in weights):  # sums need more precision
        return None
    reduction = options.pop("reduction", "mean")
    return TorchLoss(name, summed, options, reduction) if reduction in {"mean", "sum", "batchmean"} else None


def _summed_module(loss: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
    """Call a loss module with another reduction; restored even if memory runs out."""
    reduction = loss.reduction
    loss.reduction = "sum"  # type: ignore[assignment]
    try:
        total: Tensor = loss(outputs, targets)
    finally:
        loss.reduction = reduction
    return total


def _is_customized(module: nn.Module) -> bool:
    hooks = module._forward_hooks or module._forward_pre_hooks  # noqa: SLF001  no public name
    return bool(hooks) or "forward" in vars(module)


_MODULES = {
    nn.BCELoss,
    nn.BCEWithLogitsLoss,
    nn.CrossEntropyLoss,
    nn.HingeEmbeddingLoss,
    nn.HuberLoss,
    nn.KLDivLoss,
    nn.L1Loss,
    nn.MSELoss,
    nn.MultiLabelMarginLoss,
    nn.MultiLabelSoftMarginLoss,
    nn.MultiMarginLoss,
    nn.NLLLoss,
    nn.PoissonNLLLoss,
    nn.SmoothL1Loss,
    nn.SoftMarginLoss,
}
_FUNCTIONS: dict[Any, str] = {
    F.binary_cross_entropy: "BCELoss",
    F.binary_cross_entropy_with_logits: "BCEWithLogitsLoss",
    F.cross_entropy: "CrossEntropyLoss",
    F.hinge_embedding_loss: "HingeEmbeddingLoss",
    F.huber_loss: "HuberLoss",
    F.kl_div: "KLDivLoss",
    F.l1_loss: "L1Loss",
    F.mse_loss: "MSELoss",
    F.multilabel_margin_loss: "MultiLabelMarginLoss",
    F.multilabel_soft_margin_loss: "MultiLabelSoftMarginLoss",
    F.multi_margin_loss: "MultiMarginLoss",
    F.nll_loss: "NLLLoss",
    F.poisson_nll_loss: "PoissonNLLLoss",
    F.smooth_l1_loss: "SmoothL1Loss",
    F.soft_margin_loss: "SoftMarginLoss",
}
_ELEMENTWISE_WEIGHTS = {"BCELoss", "BCEWithLogitsLoss", "HuberLoss", "L1Loss", "MSELoss"}  # broadcast to the outputs
_OF_CLASSES = {"CrossEntropyLoss", "NLLLoss"}
_PER_SAMPLE = {"MultiMarginLoss", "MultiLabelMarginLoss"}
_OPTIONS = ("weight", "pos_weight", "ignore_index", "size_average", "reduce")
