"""What a guard can be told."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

from ..errors import UsageError
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
        scheduler: its `step()` is called after each update; several as a list.
        scaler: a `torch.amp.GradScaler`.
        clip_grad_norm: the largest norm of the gradients, or a function that is given the parameters.
        ema: an average of the weights: `update(model)` or `update_parameters(model)` is called after each update.
        split: `split(batch, pieces)` for batches that can't be cut by rows.
        micro_batch: into how many pieces each batch is split at least.
        device: where pieces are moved to; where the model is if None.
        precision: "amp-bf16" or "amp-fp16" to run the forward and the loss in autocast.
        allow: what may be changed when nothing else helps: "precision", "size".
        resize: `resize(batch)` returns the batch with smaller images, for `allow=("size",)`.
        predict: `predict(samples)` tells what a step needs with so many samples in a piece: bytes, or a Prediction.
        budget: bytes, or a text such as "8GiB": of the device, or of this process's RAM on the CPU.
        checkpoint: where to save when the guard is out of rungs or asked to stop: a path, or a function of the guard.
        recorder: an `oomph.monitor.Recorder` that is told of steps and faults.
        extra_state: objects that the forward changes, such as metrics, which a retry must not count twice.
        cooldown_steps: steps without a fault after which larger pieces are tried.
        overlap: under DDP, whether gradients are exchanged during backward while nothing fails; see docs/guard.md.
        rank_timeout: seconds without a sign of life after which another rank counts as dead.
    """

    forward: Callable[..., Any] | None = None
    scheduler: Any = None
    scaler: Any = None
    clip_grad_norm: float | Callable[[Any], object] | None = None
    ema: Any = None
    split: Callable[[Any, int], Any] | None = None
    micro_batch: int | None = None
    device: Any = None
    precision: str | None = None
    allow: tuple[str, ...] = ()
    resize: Callable[[Any], Any] | None = None
    predict: Predict | None = None
    budget: int | str | None = None
    checkpoint: str | os.PathLike[str] | Callable[[Any], object] | None = None
    recorder: Recorder | None = None
    extra_state: tuple[Any, ...] = ()
    cooldown_steps: int = 20
    overlap: bool = True
    rank_timeout: float = 15.0

    def __post_init__(self) -> None:
        for name in ("micro_batch", "cooldown_steps"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise UsageError(f"{name} is {value!r}", "it must be a whole number of at least 1")
        _check_numbers(self)
        _check_parts(self)
        if self.precision is not None and self.precision not in _AUTOCAST:
            raise UsageError(
                f"precision is {self.precision!r}", f"the guard runs {' or '.join(_AUTOCAST)}, or as it is"
            )
        unknown = [one for one in self.allow if one not in ALLOWED]
        if unknown:
            raise UsageError(f"allow has {unknown[0]!r}", f"it may name {' and '.join(ALLOWED)}")
        if ("size" in self.allow) != (self.resize is not None):
            raise UsageError('allow=("size",) and resize= belong together', "give both or neither")

    @property
    def schedulers(self) -> tuple[Any, ...]:
        """All of them."""
        return () if self.scheduler is None else _several(self.scheduler)

    @property
    def budget_bytes(self) -> int | None:
        """The budget as a number."""
        return None if self.budget is None else parse_size(self.budget)


def _check_numbers(options: Options) -> None:
    patience, clip = options.rank_timeout, options.clip_grad_norm
    if not _is_number(patience) or not patience > 0:
        raise UsageError(f"rank_timeout is {patience!r}", "it must be a number of seconds above 0")
    if clip is not None and not callable(clip) and (not _is_number(clip) or not clip > 0):
        raise UsageError(f"clip_grad_norm is {clip!r}", "it must be a norm above 0, or a function of the parameters")


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _check_parts(options: Options) -> None:
    scaler = options.scaler
    if scaler is not None and not all(hasattr(scaler, name) for name in ("scale", "unscale_", "step", "update")):
        raise UsageError(f"scaler is {_words(scaler)}", 'pass a torch.amp.GradScaler, or precision="amp-fp16" alone')
    for one in options.schedulers:
        step = getattr(one, "step", None)
        if not callable(step):
            raise UsageError(f"scheduler is {_words(one)}", "pass an object with step(), or a list of such")
        if any(_is_needed(parameter) for parameter in inspect.signature(step).parameters.values()):
            raise UsageError(
                f"the step of {type(one).__name__} wants to be told something, such as a score",
                "leave it out of the guard, and call it after validation",
            )


def _words(value: object) -> str:
    return repr(value) if value is None or isinstance(value, (bool, int, float, str)) else f"a {type(value).__name__}"


def _is_needed(parameter: inspect.Parameter) -> bool:
    several = parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return parameter.default is inspect.Parameter.empty and not several


def read_device(name: Any) -> torch.device:
    """The device of a name.

    Raises:
        UsageError: there is no such name.
    """
    try:
        return torch.device(name)
    except (RuntimeError, TypeError):
        raise UsageError(f"device is {_words(name)}", 'write "cuda", "cuda:1", "cpu" or "mps"') from None


def read_optimizers(given: Any) -> tuple[Optimizer, ...]:
    """One optimizer, or several.

    Raises:
        UsageError: it is something else, or none.
    """
    found = _several(given)
    wrong = [one for one in found if not isinstance(one, Optimizer)]
    if wrong or not found:
        got = _words(wrong[0]) if wrong else "an empty list"
        raise UsageError(f"optimizer is {got}", "pass a torch.optim.Optimizer, or a list of them")
    return found


def read_options(given: dict[str, Any]) -> Options:
    """The options that were given by name.

    Raises:
        UsageError: there is no such option, or a value is wrong.
    """
    names = [field.name for field in dataclasses.fields(Options)]
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        near = difflib.get_close_matches(unknown, names, n=1)
        raise UsageError(
            f"the guard has no option {unknown!r}",
            f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}",
        )
    for name in ("allow", "extra_state"):
        if name in given:
            given = {**given, name: _several(given[name])}
    return Options(**given)


def _several(value: Any) -> tuple[Any, ...]:
    """More than one, or one: a collection of metrics is one object, though one can go through it."""
    return tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)
