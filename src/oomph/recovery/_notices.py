"""What can't be exact, found by looking and said once."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, Optimizer

from ..errors import UsageError
from ._batch import count_samples, split, tensors_in
from ._keepers import ObjectState, owner_of
from ._randomness import Randomness
from ._sum import LossSum
from ._transaction import Transaction

_log = logging.getLogger("oomph")
_CPU = torch.device("cpu")
_APART = 1e-2  # relative difference at which a loss is no mean over samples


class Notices:
    """Sentences that the user should read, each said once."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, sentence: str) -> None:
        """Log it, unless it was said before."""
        if sentence not in self.said:
            self.said.append(sentence)
            _log.warning("%s", sentence)


class BatchNorms:
    """The BatchNorm layers of a model, which need at least two samples in a piece.

    Args:
        model: what is looked through, once.
        notices: what is told that their statistics come from pieces.
    """

    def __init__(self, model: nn.Module, notices: Notices) -> None:
        self._found = [(name, one) for name, one in model.named_modules() if isinstance(one, _BatchNorm)]
        self._notices, self._said = notices, False

    def smallest(self) -> int:
        """How many samples a piece must have; to be asked when there will be several pieces."""
        if not any(one.training for _, one in self._found):
            return 1
        if not self._said:
            self._said = True
            _say_batch_norm(self._notices, [name for name, one in self._found if one.training])
        return 2


def _say_batch_norm(notices: Notices, names: list[str]) -> None:
    """BatchNorm in training mode takes its statistics from a piece."""
    notices.say(
        f"{len(names)} BatchNorm layers (the first is {names[0]!r}) take their statistics from pieces, not from the "
        "whole batch, so results differ from an unsplit run as they would with a smaller batch. To avoid it, put "
        "them into eval() mode, or use GroupNorm."
    )


def refuse_lazy(model: nn.Module) -> None:
    """Layers that learn their shapes from the first batch change what they are, which can't be put back.

    Raises:
        UsageError: there is one.
    """
    for name, one in itertools.chain(model.named_parameters(), model.named_buffers()):
        if is_lazy(one):
            raise UsageError(
                f"{name!r} has no shape yet", "run the model once on a batch, then make the optimizer and the guard"
            )


def check_accumulation(notices: Notices, *, known: bool) -> None:
    """Batches that are accumulated are weighted by what their losses were divided by, where that is known."""
    if not known:
        notices.say(
            "The loss has several normalizers, so that batches that are accumulated (update=False) are weighted by "
            "their samples: the gradient is not that of one batch. It is exact with one number as the normalizer, with "
            "an oomph.LossSum, or with one large batch, which the guard splits."
        )


def refuse_closures(optimizers: tuple[Optimizer, ...]) -> None:
    """Optimizers that evaluate the loss themselves can't be part of a step that is split.

    Raises:
        UsageError: there is one.
    """
    for optimizer in optimizers:
        closure = inspect.signature(type(optimizer).step).parameters.get("closure")
        if isinstance(optimizer, LBFGS) or (closure is not None and closure.default is inspect.Parameter.empty):
            raise UsageError(
                f"{type(optimizer).__name__} evaluates the loss several times in one step",
                "use an optimizer that makes its step from gradients, or put your closure into an oomph.Transaction",
            )


def check_loss(notices: Notices, loss: Callable[..., Any], model: nn.Module, outputs: Any, targets: Any) -> None:
    """Compare the loss of a piece with that of its halves, once: is it a mean over samples at all?

    A loss over pairs of samples (contrastive), and one divided by positives, are not, and the guard must not split
    them as if they were. Costs two evaluations of the loss, and reads it. What the loss changes is put back, and an
    error in it tells nothing: it may be made for batches of one size, or want gradients of its own.
    """
    found: list[str] = []
    randomness = Randomness(torch.device("cuda", torch.cuda.current_device()) if _is_on_gpu(outputs) else _CPU)
    transaction = Transaction.of([randomness, ObjectState(owner_of(loss), but=[model])])
    try:
        fault = transaction.attempt(lambda: found.extend(_compare(loss, outputs, targets)))
    except Exception:  # noqa: BLE001  whatever it is, the loss that is trained with will meet it too, or not
        return
    transaction.undo()
    if fault is None:
        for sentence in found:
            notices.say(sentence)


def _is_on_gpu(outputs: Any) -> bool:
    return any(tensor.is_cuda for tensor in tensors_in(outputs))


def _compare(loss: Callable[..., Any], outputs: Any, targets: Any) -> list[str]:
    samples = count_samples((outputs, targets))
    if samples < 2:  # noqa: PLR2004  halves
        return []
    with torch.no_grad():
        whole = loss(outputs, targets)
        if isinstance(whole, LossSum) or not isinstance(whole, Tensor) or whole.numel() != 1:
            return []
        halves = [(count_samples(half), loss(*half)) for half in split((outputs, targets), 2)]
        mean = sum(count / samples * float(value) for count, value in halves)
    if abs(mean - float(whole)) <= _APART * max(abs(float(whole)), 1e-6):
        return []
    sentence = (
        f"The loss of the first piece is {float(whole):.6g}, and that of its halves {mean:.6g} on average: it is no "
        "mean over samples, so that the gradient of a split batch is another one. If it is divided by a count, give "
        "it a normalizer or return an oomph.LossSum; if it compares samples with each other (a contrastive loss), it "
        "can't be split without changing it: use checkpointing, or a larger device."
    )
    return [sentence]
