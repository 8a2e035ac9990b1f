"""The loss of a batch: from a loss function over the model's outputs, from a user's forward, or from the model."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from ...errors import UsageError
from ...job import model_arguments
from ...losses import LossSum, Number, torch_loss
from ..snapshots import modules_of

Forward = Callable[..., Any]


class Objective:
    """Computes the outputs and the loss of a micro-batch.

    Args:
        model: the module to train.
        loss: `loss(outputs, targets)`; None if `forward` or the model returns the loss.
        forward: `forward(model, batch)` returns the loss, or the outputs that `loss` receives.
        reduction: "mean" or "sum", if the user declared it for a plain loss; "either" if the check tells.
    """

    def __init__(
        self, model: nn.Module, loss: Forward | None, forward: Forward | None = None, reduction: str | None = None
    ) -> None:
        self.model, self._loss, self._forward, self._reduction = model, loss, forward, reduction
        self.declared_reduction = None if reduction == "either" else reduction
        self.may_add_up = reduction == "either"
        self.loss_modules = [module for module in modules_of(loss) if module is not model]
        self.torch_loss = None if reduction is not None else torch_loss(loss)
        function = forward if forward is not None and hasattr(forward, "normalizer") else loss
        self.normalizer: Callable[[Any], Any] | None = getattr(function, "normalizer", None)
        self.weight_by_samples = bool(getattr(function, "weight_by_samples", False))
        self._forward_has_normalizer = self.normalizer is not None and function is forward

    @property
    def key(self) -> object:
        """Identifies the forward from step to step, also if it is a lambda that each step creates anew."""
        return _identity(self._forward)

    def with_forward(self, forward: Forward) -> Objective:
        """Return the objective with another forward."""
        return Objective(self.model, self._loss, forward, self._reduction)

    @property
    def has_forward(self) -> bool:
        """True if a user's function runs the model."""
        return self._forward is not None

    @property
    def returns_own_loss(self) -> bool:
        """True if the model is called with the batch and returns its loss, as transformers' models do."""
        return self._forward is None and self._loss is None

    @property
    def reduction(self) -> str:
        """How the losses of micro-batches combine: "sum" or "mean"."""
        if self.torch_loss is not None:
            return "sum" if self.torch_loss.reduction == "sum" else "mean"
        return self.declared_reduction or "mean"

    def outputs(self, batch: Any, extra: tuple[Any, ...] = (), **keywords: Any) -> Any:
        """Run the model, or the user's forward, which may return the loss itself.

        Args:
            batch: a micro-batch on the device.
            extra: the value of a `normalizer`.
            keywords: further arguments of a model that returns its loss.
        """
        if self._forward is not None:
            return self._forward(self.model, batch, *(extra if self._forward_has_normalizer else ()))
        inputs = batch if self.returns_own_loss else _pair(batch)[0]
        args, kwargs = model_arguments(inputs)
        return self.model(*args, **kwargs, **keywords)

    def loss(self, outputs: Any, batch: Any, extra: tuple[Any, ...] = ()) -> Any:
        """Return the loss of outputs: a scalar or a LossSum."""
        if self.returns_own_loss:
            return _loss_in(outputs)
        if self._loss is None or self._is_loss_of_forward(outputs):
            return outputs
        return self._loss(outputs, self.targets(batch), *(() if self._forward_has_normalizer else extra))

    def loss_of(self, outputs: Any, targets: Any) -> Any:
        """Return the loss of the outputs of a whole batch."""
        assert self._loss is not None  # noqa: S101  `has_outputs` said so
        return self._loss(outputs, targets)

    def count(self, batch: Any) -> Number | None:
        """Return what one of torch's losses is divided by, if the targets of a whole batch tell it."""
        return None if self.torch_loss is None else self.torch_loss.count_of(self.targets(batch))

    def split_loss(self, outputs: Any, batch: Any, extra: tuple[Any, ...] = ()) -> Any:
        """Return the loss of one of several micro-batches: torch's own losses as a sum.

        Args:
            outputs: the outputs of the micro-batch.
            batch: the micro-batch.
            extra: the value of a `normalizer`, or the `count` of the whole batch.
        """
        if self.torch_loss is None or self._is_loss_of_forward(outputs):
            return self.loss(outputs, batch, extra)
        targets = self.targets(batch)
        if self.torch_loss.reduction == "sum":
            return self.torch_loss.total_of(outputs, targets)
        return self.torch_loss.total_of(outputs, targets) / extra[0] if extra else self.torch_loss.sum(outputs, targets)

    def targets(self, batch: Any) -> Any:
        """Return what the loss receives beside the outputs: the second of a pair, or the whole batch."""
        if self._forward is not None and not _is_pair(batch):
            return batch
        return _pair(batch)[1]

    def has_outputs(self, outputs: Any) -> bool:
        """Return True if the loss is computed from these outputs by a function that can be called once for all."""
        return self._loss is not None and not self._is_loss_of_forward(outputs)

    def _is_loss_of_forward(self, outputs: Any) -> bool:
        """Return True if the user's forward returned the loss; outputs of one sample have a dimension for it."""
        is_scalar = isinstance(outputs, Tensor) and outputs.dim() == 0
        return self._forward is not None and (is_scalar or isinstance(outputs, LossSum))


def is_loss(value: Any) -> bool:
    """Return True for what a forward returns as its loss: a scalar tensor or a LossSum."""
    return isinstance(value, LossSum) or (isinstance(value, Tensor) and value.numel() == 1)


def label_counts(batch: Any) -> Iterator[Callable[[Any], Tensor]]:
    """Yield ways to count the labels of a batch: all that are not -100, then without the first of each sequence."""
    labels = _labels(batch)
    if labels is None or labels.is_floating_point():
        return
    yield lambda batch: (_labels(batch) != _IGNORED_LABEL).sum()
    if labels.dim() > 1:
        # A language model predicts each token from those before it, so the first has no prediction.
        yield lambda batch: (_labels(batch)[..., 1:] != _IGNORED_LABEL).sum()


def _labels(batch: Any) -> Any:
    labels = batch.get("labels") if isinstance(batch, Mapping) else batch[1] if _is_pair(batch) else None
    return labels if isinstance(labels, Tensor) else None


_IGNORED_LABEL = -100


def _identity(value: Any) -> object:
    """Return what makes two functions the same: their code, and the names, flags and functions that they captured."""
    if isinstance(value, functools.partial):
        captured = [value.func, *value.args, *itertools.chain(*value.keywords.items())]
        return (functools.partial, *map(_identity, captured))
    if isinstance(value, MethodType):
        return value.__func__.__code__, id(value.__self__)
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if not _is_empty(cell)]
        return (value.__code__, *map(_identity, [*cells, *(value.__defaults__ or ())]))
    if value is None or isinstance(value, (bool, str)):
        return value
    # Numbers, tensors and other data are other ones in each step.
    return id(value) if callable(value) else type(value)


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  reading it raises
    except ValueError:
        return True
    return False


def _loss_in(outputs: Any) -> Any:
    """Return the loss in a model's outputs: an attribute, an entry, or the first of a tuple."""
    loss = getattr(outputs, "loss", None)
    if loss is None and isinstance(outputs, Mapping):
        loss = outputs.get("loss")
    if loss is None and isinstance(outputs, (tuple, list)) and outputs:
        loss = outputs[0]
    loss = outputs if loss is None else loss
    if is_loss(loss):
        return loss
    raise UsageError(
        f"the model returned a {type(outputs).__name__} without a loss",
        "give the guard loss=, a function of (outputs, targets), or forward=, a function of (model, batch)",
    )


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2  # noqa: PLR2004  inputs and targets


def _pair(batch: Any) -> tuple[Any, Any]:
    if _is_pair(batch):
        return batch[0], batch[1]
    raise UsageError(
        f"the batch is a {type(batch).__name__}, not a pair of inputs and targets",
        "give the guard forward=, a function of (model, batch) that returns the loss or the outputs for loss=",
    )
