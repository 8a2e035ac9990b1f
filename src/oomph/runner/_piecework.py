"""Forward, loss and backward of a batch, piece by piece."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import WrongCall
from ._batch import Splitter, count_samples, move, split
from ._loss import Normaliser, Tally

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
        self.around: Callable[..., contextlib.AbstractContextManager[object]] = _nothing  # what each piece runs in
        self.look: Callable[[Any, Any], object] | None = None  # is shown outputs and targets, once

    def samples(self, batch: Any) -> int:
        """How many samples a batch has."""
        return count_samples(batch, ragged=self._splitter is not None)

    def cut(self, batch: Any, pieces: int) -> Sequence[Any]:
        """The pieces of a batch.

        Raises:
            WrongCall: the user's function made another number of them.
        """
        if self._splitter is None or pieces == 1:
            return split(batch, pieces) if self._splitter is None else [batch]
        found = self._splitter(batch, pieces)
        if len(found) != pieces:
            raise WrongCall(f"split made {len(found)} pieces of a batch, not {pieces}", "return as many as are asked")
        return found

    def run(
        self,
        batch: Any,
        pieces: int,
        forward: Callable[..., Any] | None,
        backward: Callable[[Tensor], object],
    ) -> Tally:
        """Forward, loss and backward of each piece; the tally of their losses."""
        function = forward or self._loss
        if function is None:
            raise WrongCall("the guard has neither a loss nor a forward", "give it one of them")
        normaliser = Normaliser(function)
        # First of all: what the loss is divided by may depend on the size.
        for _ in range(self._setting.resized):
            assert self._setting.resize is not None  # noqa: S101  the ladder resizes only with it
            batch = self._setting.resize(batch)
        extra = normaliser.arguments(batch, self.device)
        samples = self.samples(batch)
        tally = Tally(samples, additive=normaliser.is_wanted)
        for number, piece in enumerate(self.cut(batch, pieces), 1):
            size = samples if pieces == 1 else self.samples(piece)
            share = functools.partial(self._share, tally, size, forward, extra)
            with self.around(last=number == pieces):
                self._one(piece, share, backward)
        return tally

    def _share(
        self, tally: Tally, size: int, forward: Callable[..., Any] | None, extra: tuple[Any, ...], moved: Any
    ) -> Tensor:
        return tally.weigh(self._value(moved, forward, extra), size)

    def _one(self, piece: Any, share: Callable[[Any], Tensor], backward: Callable[[Tensor], object]) -> None:
        # In a function of its own, so that nothing of a piece is alive when the next one begins.
        moved = move(piece, self.device)
        with self.autocast():
            found = share(moved)
        backward(found)

    def _value(self, piece: Any, forward: Callable[..., Any] | None, extra: tuple[Any, ...]) -> Any:
        if forward is not None:
            return forward(self.model, piece, *extra)
        assert self._loss is not None  # noqa: S101  `run` looked
        inputs, targets = pair(piece)
        outputs = call(self.model, inputs)
        if self.look is not None and not extra:
            look, self.look = self.look, None
            look(outputs, targets)
        return self._loss(outputs, targets, *extra)

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """The precision that forwards run in."""
        if self._setting.precision is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=_AUTOCAST[self._setting.precision])


def _nothing(*, last: bool) -> contextlib.AbstractContextManager[object]:
    del last
    return contextlib.nullcontext()


def pair(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets of a batch.

    Raises:
        WrongCall: it is no pair.
    """
    if isinstance(batch, (tuple, list)) and len(batch) == 2:  # noqa: PLR2004  inputs and targets
        return batch[0], batch[1]
    raise WrongCall(
        f"the batch is a {type(batch).__name__}, not a pair of inputs and targets",
        "give the guard forward=, a function of (model, batch) that returns the loss",
    )


def call(model: nn.Module, inputs: Any) -> Any:
    """Run a model on inputs: a dictionary by name, a sequence by position."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)
