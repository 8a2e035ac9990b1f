"""Checks of what a guard can do exactly; what it can't is said once, or refused."""

from __future__ import annotations

import inspect
import itertools
import logging
import sys
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, Optimizer

from ..batch import write_versions
from ..errors import UsageError
from ..patches import is_fake_quantized
from .splitting import SplitRule

_log = logging.getLogger("oomph")


class WarnOnce:
    """Logs each warning once and remembers it."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def warn(self, message: str) -> None:
        """Log a warning unless it was logged before."""
        if message not in self.messages:
            self.messages.append(message)
            _log.warning("%s", message)


class BatchNormCheck:
    """The BatchNorm layers of a model, also Keras's: in training they need two samples and micro-batch statistics."""

    def __init__(self, model: nn.Module, warnings: WarnOnce) -> None:
        self._layers = [(name, module) for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
        self._keras_layers = _keras_batch_norms(model)
        self._warnings, self._has_warned = warnings, False

    def min_samples(self) -> int:
        """Return the smallest micro-batch that the layers accept."""
        return 2 if self._names() else 1

    def warn_if_split(self) -> None:
        """Warn, in the first step that is split, that statistics come from micro-batches."""
        if self._has_warned:
            return
        names = self._names()
        if names:
            self._has_warned = True
            fix = (
                "set trainable=False on them or use GroupNormalization"
                if self._keras_layers
                else "put them into eval() mode or use GroupNorm"
            )
            self._warnings.warn(
                f"{len(names)} BatchNorm layers (the first is {names[0]!r}) compute their statistics per micro-batch "
                "instead of over the whole batch, so results differ from an unsplit run as with a smaller batch. To "
                f"avoid this, {fix}."
            )

    def _names(self) -> list[str]:
        """Return the names of the layers that use the statistics of a batch."""
        names = [name for name, layer in self._layers if layer.training]
        return names + [layer.name for layer in self._keras_layers if layer.trainable]


def _keras_batch_norms(model: nn.Module) -> list[Any]:
    """Return the BatchNorm layers of a Keras model, which knows layers that torch doesn't list as its modules."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, keras.layers.Layer):
        return []
    layers = model._flatten_layers()  # noqa: SLF001  `layers` lacks those within other layers
    return [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]


class RoundingCheck:
    """The layers of a model that round as in int8: their ranges are those of the micro-batch."""

    def __init__(self, model: nn.Module, warnings: WarnOnce) -> None:
        self._names = [name for name, module in model.named_modules() if is_fake_quantized(module)]
        self._warnings = warnings

    def warn_if_split(self) -> None:
        """Warn, in the first step that is split, that ranges come from micro-batches."""
        if self._names:
            self._warnings.warn(
                f"{len(self._names)} layers (the first is {self._names[0]!r}) round their values in the range of the "
                "micro-batch instead of the whole batch, so results differ from an unsplit run by rounding errors."
            )


def reject_lazy_modules(model: nn.Module) -> None:
    """Reject layers that get their shapes from the first batch: a retry can't restore that.

    Raises:
        UsageError: the model has such a layer.
    """
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if is_lazy(tensor):
            raise UsageError(
                f"{name!r} has no shape yet", "run the model on a batch before you create the optimizer and the guard"
            )


def reject_closures(optimizers: Sequence[Optimizer]) -> None:
    """Reject optimizers that evaluate the loss themselves: their step can't be split.

    Raises:
        UsageError: there is such an optimizer.
    """
    for optimizer in optimizers:
        if hasattr(optimizer, "first_step") and hasattr(optimizer, "second_step"):
            raise UsageError(
                f"{type(optimizer).__name__} computes gradients twice in one update",
                "use guard.backward before each of its two steps, or an optimizer whose step needs only gradients",
            )
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
        if isinstance(optimizer, LBFGS) or (closure is not None and closure.default is inspect.Parameter.empty):
            raise UsageError(
                f"{type(optimizer).__name__} evaluates the loss several times in one step",
                "use an optimizer whose step needs only gradients, or run your closure in an oomph.Transaction",
            )


def reject_changed_batch(batch: Any, versions: list[int]) -> None:
    """Reject the retry of a batch that the forward changed in place: the change would happen twice.

    Raises:
        UsageError: the batch was changed.
    """
    if write_versions(batch) != versions:
        raise UsageError(
            "memory ran out, and the step can't be retried because the forward changed its batch in place",
            "create a new tensor in the forward: x = x / 255 instead of x /= 255",
        )


def warn_accumulation(warnings: WarnOnce, rule: SplitRule, *, has_known_divisor: bool) -> None:
    """Warn about what the guard can't know of accumulated batches (`update=False`)."""
    if not has_known_divisor:
        warnings.warn(
            "The loss has several normalizers, so accumulated batches (update=False) are weighted by samples, and the "
            "gradient is not that of one large batch. It is exact with a single number as the normalizer, with an "
            "oomph.LossSum, or with one large batch, which the guard splits."
        )
    elif rule.passes > 1 or rule.problem:
        warnings.warn(
            "Accumulated batches (update=False) are averaged by samples, which for this loss is not the gradient of "
            "one large batch. Pass one large batch to guard.step, which splits it exactly."
        )
    elif rule.needs_repeats:
        warnings.warn(
            "Accumulated batches (update=False) are averaged by the guard, so the loss must not be divided by the "
            "number of accumulation steps."
        )
