"""What a guard can be told."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import WrongCall
from ..monitor import Recorder
from ..units import parse_size
from ._foresight import Predict

ALLOWED = ("precision", "size")
_AUTOCAST = ("amp-bf16", "amp-fp16")


@dataclass(frozen=True)
class Options:
    """How a guard works.

    Attributes:
        forward: `forward(model, piece)` runs the model and returns the loss, instead of `loss(outputs, targets)`.
        scheduler: its `step()` is called after each update.
        scaler: a `torch.amp.GradScaler`.
        clip: the largest norm of the gradients, or a function that is given the parameters.
        ema: an average of the weights: `update(model)` or `update_parameters(model)` is called after each update.
        split: `split(batch, pieces)` for batches that can't be cut by rows.
        pieces: into how many pieces each batch is split at least.
        device: where pieces are moved to; where the model is if None.
        precision: "amp-bf16" or "amp-fp16" to run the forward and the loss in autocast.
        allow: what may be changed when nothing else helps: "precision", "size".
        resize: `resize(batch)` returns the batch with smaller images, for `allow=("size",)`.
        predict: `predict(samples)` tells what a step needs with so many samples in a piece: bytes, or a Prediction.
        budget: bytes, or a text such as "8GiB": of the device, or of this process's RAM on the CPU.
        checkpoint: where to save when the guard is out of rungs or asked to stop: a path, or a function of the guard.
        recorder: an `oomph.monitor.Recorder` that is told of steps and faults.
        keep: objects that the forward changes, such as metrics, which a retry must not count twice.
        calm: steps without a fault after which larger pieces are tried.
        overlap: under DDP, whether gradients are exchanged during backward while nothing fails; see docs/guard.md.
        patience: seconds without a sign of life after which another rank counts as dead.
    """

    forward: Callable[..., Any] | None = None
    scheduler: Any = None
    scaler: Any = None
    clip: float | Callable[[Any], object] | None = None
    ema: Any = None
    split: Callable[[Any, int], Any] | None = None
    pieces: int | None = None
    device: Any = None
    precision: str | None = None
    allow: tuple[str, ...] = ()
    resize: Callable[[Any], Any] | None = None
    predict: Predict | None = None
    budget: int | str | None = None
    checkpoint: str | os.PathLike[str] | Callable[[Any], object] | None = None
    recorder: Recorder | None = None
    keep: tuple[Any, ...] = ()
    calm: int = 20
    overlap: bool = True
    patience: float = 15.0

    def __post_init__(self) -> None:
        for name in ("pieces", "calm"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise WrongCall(f"{name} is {value!r}", "it must be a whole number of at least 1")
        if self.precision is not None and self.precision not in _AUTOCAST:
            raise WrongCall(f"precision is {self.precision!r}", f"the guard runs {' or '.join(_AUTOCAST)}, or as it is")
        unknown = [one for one in self.allow if one not in ALLOWED]
        if unknown:
            raise WrongCall(f"allow has {unknown[0]!r}", f"it may name {' and '.join(ALLOWED)}")
        if ("size" in self.allow) != (self.resize is not None):
            raise WrongCall('allow=("size",) and resize= belong together', "give both or neither")

    @property
    def budget_bytes(self) -> int | None:
        """The budget as a number."""
        return None if self.budget is None else parse_size(self.budget)


def read_options(given: dict[str, Any]) -> Options:
    """The options that were given by name.

    Raises:
        WrongCall: there is no such option, or a value is wrong.
    """
    names = [field.name for field in dataclasses.fields(Options)]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, names, n=1)
        raise WrongCall(
            f"the guard has no option {unknown!r}",
            f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}",
        )
    for name in ("allow", "keep"):
        if name in given:
            given = {**given, name: _several(given[name])}
    return Options(**given)


def _several(value: Any) -> tuple[Any, ...]:
    """More than one, or one: a collection of metrics is one object, though one can go through it."""
    return tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)
