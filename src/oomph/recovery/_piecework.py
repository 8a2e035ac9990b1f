"""Forward, loss and backward of a batch, piece by piece."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UsageError
from ._batch import Splitter, count_samples, cut, move, piece_sizes
from ._loss import Tally, normalizers_of

_AS_IT_IS = contextlib.nullcontext()  # can be entered as often as wanted
_AUTOCAST = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}


@dataclass
class Setting:
    """How pieces are run; the ladder may change the precision and the size.

    Attributes:
        precision: "amp-bf16", "amp-fp16", or None for as it is.
        resize: what makes a batch smaller, applied so many times.
    """

    precision: str | None = None
    resize: Callable[[Any], Any] | None = None
    resized: int = 0


class Piecework:
    """Runs the pieces of batches.

    Args:
        model: the module that is called.
        loss: `loss(outputs, targets)`, for batches that are a pair of inputs and targets.
        splitter: cuts batches that can't be cut by rows.
        device: where pieces are moved to.
        setting: precision and size.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Any] | None,
        splitter: Splitter | None,
        device: torch.device,
        setting: Setting,
    ) -> None:
        self.model, self.device = model, device
        self._loss, self._splitter, self._setting = loss, splitter, setting
        self.announce: Callable[[bool], object] | None = None  # is told whether a piece makes the gradients final
        self.look: Callable[[Any, Any], object] | None = None  # is shown outputs and targets, once
        self._looks = False  # whether this batch is cut, in pieces that can be halved

    def samples(self, batch: Any) -> int:
        """How many samples a batch has."""
        return count_samples(batch, ragged=self._splitter is not None)

    def cut(self, batch: Any, pieces: int) -> Sequence[Any]:
        """The pieces of a batch.

        Raises:
            UsageError: the user's function made another number of them.
        """
        if pieces == 1:
            return [batch]
        if self._splitter is None:
            return cut(batch, self.samples(batch), pieces)
        found = self._splitter(batch, pieces)
        if len(found) != pieces:
            raise UsageError(f"split made {len(found)} pieces of a batch, not {pieces}", "return as many as are asked")
        return found

    def run(
        self,
        batch: Any,
        pieces: int,
        forward: Callable[..., Any] | None,
        backward: Callable[[Tensor, float], object],
        samples: int | None = None,
    ) -> Tally:
        """Forward, loss and backward of each piece; the tally of their losses.

        Args:
            batch: all of it.
            pieces: into how many it is cut.
            forward: what is called instead of the model and the loss.
            backward: is given what to differentiate, and its weight.
            samples: how many the batch has, if that is known.
        """
        function = forward or self._loss
        if function is None:
            raise UsageError("the guard has neither a loss nor a forward", "give it one of them")
        # First of all: what the loss is divided by may depend on the size.
        for _ in range(self._setting.resized):
            assert self._setting.resize is not None  # noqa: S101  the ladder resizes only with it
            batch, samples = self._setting.resize(batch), None
        extra = normalizers_of(function, batch, self.device)
        samples = self.samples(batch) if samples is None else samples
        self._looks = pieces > 1 and samples >= 2 * pieces
        tally = Tally(samples, extra, weight_by_samples=getattr(function, "weight_by_samples", False))
        for number, (piece, size) in enumerate(self._pieces(batch, samples, pieces), 1):
            if self.announce is not None:
                self.announce(number == pieces and not tally.will_correct)
            backward(*self._share(piece, tally, size, forward, extra))
        return tally

    def _pieces(self, batch: Any, samples: int, pieces: int) -> Iterable[tuple[Any, int]]:
        """The pieces of a batch, with their samples."""
        if pieces == 1:
            return ((batch, samples),)
        parts = self.cut(batch, pieces)
        if self._splitter is None:
            return zip(parts, piece_sizes(samples, pieces), strict=True)
        return ((part, self.samples(part)) for part in parts)  # of a user's own making have sizes of their own

    def _share(
        self, piece: Any, tally: Tally, size: int, forward: Callable[..., Any] | None, extra: tuple[Any, ...]
    ) -> tuple[Tensor, float]:
        # In a function of its own, so that nothing of a piece is alive when the next one begins.
        piece = move(piece, self.device)
        if self._setting.precision is None:
            return tally.weigh(self._value(piece, forward, extra), size)
        with self.autocast():
            return tally.weigh(self._value(piece, forward, extra), size)

    def _value(self, piece: Any, forward: Callable[..., Any] | None, extra: tuple[Any, ...]) -> Any:
        if forward is not None:
            return forward(self.model, piece, *extra)
        assert self._loss is not None  # noqa: S101  `run` looked
        inputs, targets = pair(piece)
        outputs = call(self.model, inputs)
        if self.look is not None and self._looks and not extra:
            look, self.look = self.look, None
            look(outputs, targets)
        return self._loss(outputs, targets, *extra)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The precision that forwards run in."""
        if self._setting.precision is None:
            return _AS_IT_IS
        return torch.autocast(self.device.type, dtype=_AUTOCAST[self._setting.precision])


def pair(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets of a batch.

    Raises:
        UsageError: it is no pair.
    """
    if isinstance(batch, (tuple, list)) and len(batch) == 2:  # noqa: PLR2004  inputs and targets
        return batch[0], batch[1]
    raise UsageError(
        f"the batch is a {type(batch).__name__}, not a pair of inputs and targets",
        "give the guard forward=, a function of (model, batch) that returns the loss",
    )


def call(model: nn.Module, inputs: Any) -> Any:
    """Run a model on inputs: a dictionary by name, a sequence by position."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)
