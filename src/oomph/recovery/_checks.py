"""Checks of what a guard can do exactly; what it can't is said once, or refused."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, Optimizer

from ..batch import count_samples, split_batch, tensors_in, write_versions
from ..errors import UsageError
from ._loss import LossAccumulator, LossSum
from ._object_snapshots import ObjectSnapshot, owner_of
from ._snapshots import RngSnapshot
from ._transaction import Transaction

_log = logging.getLogger("oomph")
_MEAN_TOLERANCE = 1e-2  # relative difference beyond which a loss is not a mean over samples


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
    """The BatchNorm layers of a model: in training mode they need two samples and use micro-batch statistics."""

    def __init__(self, model: nn.Module, warnings: WarnOnce) -> None:
        self._layers = [(name, module) for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
        self._warnings, self._has_warned = warnings, False

    def min_samples(self) -> int:
        """Return the smallest micro-batch that the layers accept."""
        return 2 if any(layer.training for _, layer in self._layers) else 1

    def warn_if_split(self, micro_batches: int) -> None:
        """Warn, in the first step that is split, that statistics come from micro-batches."""
        if micro_batches == 1 or self._has_warned:
            return
        names = [name for name, layer in self._layers if layer.training]
        if names:
            self._has_warned = True
            self._warnings.warn(
                f"{len(names)} BatchNorm layers (the first is {names[0]!r}) compute their statistics per micro-batch "
                "instead of over the whole batch, so results differ from an unsplit run as with a smaller batch. To "
                "avoid this, put them into eval() mode or use GroupNorm."
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


def warn_unknown_divisor(warnings: WarnOnce, losses: LossAccumulator) -> None:
    """Warn that batches with several normalizers are accumulated by samples."""
    if losses.has_known_divisor:
        return
    warnings.warn(
        "The loss has several normalizers, so accumulated batches (update=False) are weighted by samples, and the "
        "gradient is not that of one large batch. It is exact with a single number as the normalizer, with an "
        "oomph.LossSum, or with one large batch, which the guard splits."
    )


def check_loss(warnings: WarnOnce, loss: Callable[..., Any], model: nn.Module, outputs: Any, targets: Any) -> None:
    """Warn if the loss of a micro-batch is not the mean of the losses of its halves.

    A loss over pairs of samples (contrastive) or divided by a count of positives isn't. The check evaluates the loss
    three times and reads it. State that the loss changes is restored, and errors are ignored: the loss may require a
    certain batch size, or gradients.
    """
    device = next((tensor.device for tensor in tensors_in(outputs)), torch.device("cpu"))
    transaction = Transaction.of([RngSnapshot(device), ObjectSnapshot(owner_of(loss), exclude=[model])])
    differences: list[tuple[float, float]] = []
    try:
        oom = transaction.try_run(lambda: differences.extend(_differences(loss, outputs, targets)))
    except Exception:  # noqa: BLE001  see above
        return
    transaction.rollback()
    if oom is None and differences:
        whole, halves = differences[0]
        warnings.warn(
            f"The loss of the first micro-batch is {whole:.6g}, but its halves have {halves:.6g} on average: it is not "
            "a mean over samples, so the gradient of a split batch differs from that of the whole batch. If the loss "
            "is divided by a count, give it a normalizer or return an oomph.LossSum. If it compares samples with each "
            "other (a contrastive loss), splitting changes it: use checkpointing, or a larger device."
        )


def _differences(loss: Callable[..., Any], outputs: Any, targets: Any) -> list[tuple[float, float]]:
    samples = count_samples((outputs, targets))
    if samples < 2:  # noqa: PLR2004  halves
        return []
    with torch.no_grad():
        whole = loss(outputs, targets)
        if isinstance(whole, LossSum) or not isinstance(whole, Tensor) or whole.numel() != 1:
            return []
        halves = [(count_samples(half), loss(*half)) for half in split_batch((outputs, targets), 2)]
        mean = sum(count / samples * float(value) for count, value in halves)
    is_mean = abs(mean - float(whole)) <= _MEAN_TOLERANCE * max(abs(float(whole)), 1e-6)
    return [] if is_mean else [(float(whole), mean)]
