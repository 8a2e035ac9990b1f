"""The options of a guard, checked."""

from __future__ import annotations

import inspect
import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.optim import Optimizer

from ..batch import Splitter, batch_format
from ..errors import UsageError
from ..monitor import Recorder
from ..patches import AUTOCAST_DTYPES
from ..units import parse_size
from ._checkpoint import check_checkpoint_path
from ._memory import Predict
from .splitting import MetricFunction

ALLOWED = ("precision", "size")
_SCALER_METHODS = ("scale", "unscale_", "step", "update")


@dataclass(frozen=True)
class GuardConfig:
    """The options of `oomph.guard`, which documents them."""

    forward: Callable[..., Any] | None = None
    split: Splitter | str | None = None
    samples: Callable[[Any], int] | None = None
    reduction: str | None = None
    inexact: str = "refuse"
    metrics: MetricFunction | None = None
    micro_batch: int | None = None
    schedulers: tuple[Any, ...] = ()
    scaler: Any = None
    clip_grad_norm: float | Callable[[Any], object] | None = None
    ema: Any = None
    precision: str | None = None
    device: Any = None
    budget: int | str | None = None
    predict: Predict | None = None
    allow: tuple[str, ...] = ()
    resize: Callable[[Any], Any] | None = None
    checkpoint: str | os.PathLike[str] | Callable[[Any], object] | None = None
    recorder: Recorder | None = None
    extra_state: tuple[Any, ...] = ()
    cooldown_steps: int = 20
    rank_timeout: float = 15.0
    snapshot: str | os.PathLike[str] | None = None
    nvtx: bool = False

    def __post_init__(self) -> None:
        for name in ("micro_batch", "cooldown_steps"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise UsageError(f"{name} is {value!r}", "it must be a whole number of at least 1")
        self._check_numbers()
        self._check_objects()
        if self.snapshot is not None and not isinstance(self.snapshot, (str, os.PathLike)):
            raise UsageError(f"snapshot is {_describe(self.snapshot)}", "pass a folder for the files")
        if not isinstance(self.nvtx, bool):
            raise UsageError(f"nvtx is {_describe(self.nvtx)}", "pass True or False")
        _check_choice("reduction", self.reduction, (None, "mean", "sum", "either"))
        _check_choice("inexact", self.inexact, ("refuse", "warn"))
        if self.precision is not None and self.precision not in AUTOCAST_DTYPES:
            choices = " or ".join(AUTOCAST_DTYPES)
            raise UsageError(f"precision is {self.precision!r}", f"use {choices}, or leave it out")
        unknown = next((change for change in self.allow if change not in ALLOWED), None)
        if unknown is not None:
            raise UsageError(f"allow contains {unknown!r}", f"it may contain {' and '.join(ALLOWED)}")
        if ("size" in self.allow) != (self.resize is not None):
            raise UsageError('allow=("size",) and resize= belong together', "give both or neither")

    def _check_numbers(self) -> None:
        timeout, clip = self.rank_timeout, self.clip_grad_norm
        if not _is_number(timeout) or not timeout > 0:
            raise UsageError(f"rank_timeout is {timeout!r}", "it must be a number of seconds above 0")
        if clip is not None and not callable(clip) and (not _is_number(clip) or not clip > 0):
            raise UsageError(
                f"clip_grad_norm is {clip!r}", "it must be a norm above 0, or a function of the parameters"
            )

    def _check_objects(self) -> None:
        scaler = self.scaler
        if scaler is not None and not all(hasattr(scaler, name) for name in _SCALER_METHODS):
            fix = 'pass a torch.amp.GradScaler, or only precision="amp-fp16"'
            raise UsageError(f"scaler is {_describe(scaler)}", fix)
        for scheduler in self.schedulers:
            # That of accelerate passes all arguments on.
            step = getattr(getattr(scheduler, "scheduler", scheduler), "step", None)
            if not callable(step):
                raise UsageError(
                    f"scheduler is {_describe(scheduler)}", "pass an object with step(), or a list of them"
                )
            if any(_is_required(parameter) for parameter in inspect.signature(step).parameters.values()):
                raise UsageError(
                    f"step() of {type(scheduler).__name__} requires an argument, such as a metric",
                    "leave it out of the guard and call it after validation",
                )

    @property
    def budget_bytes(self) -> int | None:
        """The budget in bytes."""
        return None if self.budget is None else parse_size(self.budget)


def check_options(**options: Any) -> None:
    """Check options of `oomph.guard` before there is a batch for which the guard is created.

    Raises:
        UsageError: an option is wrong, or the checkpoint's folder doesn't exist.
    """
    known = {field.name for field in fields(GuardConfig)} - {"allow", "extra_state"}
    config = GuardConfig(
        **{name: value for name, value in options.items() if name in known},
        schedulers=as_tuple(options.get("scheduler")),
        allow=as_tuple(options.get("allow")),
        extra_state=check_extra_state(options.get("extra_state", ())),
    )
    if config.budget is not None:
        parse_size(config.budget)
    batch_format(config.split, config.samples)
    check_checkpoint_path(config.checkpoint)


def _check_choice(name: str, value: object, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        allowed = " or ".join(repr(choice) for choice in choices if choice is not None)
        raise UsageError(f"{name} is {_describe(value)}", f"use {allowed}, or leave it out")


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _describe(value: object) -> str:
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if is_plain else f"a {type(value).__name__}"


def _is_required(parameter: inspect.Parameter) -> bool:
    is_variadic = parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return parameter.default is inspect.Parameter.empty and not is_variadic


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Return several values or a single one as a tuple; a MetricCollection is a single object, though iterable."""
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else (value,)


def check_extra_state(value: Any) -> tuple[Any, ...]:
    """Return the objects of `extra_state=` as a tuple.

    Raises:
        UsageError: it is an empty list, which may be meant as the object itself.
    """
    if isinstance(value, list) and not value:
        raise UsageError("extra_state is an empty list", "if the list is the state, pass it in a tuple")
    return as_tuple(value)


def parse_device(device: Any) -> torch.device:
    """Parse a device name.

    Raises:
        UsageError: there is no such device.
    """
    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise UsageError(f"device is {_describe(device)}", 'use "cuda", "cuda:1", "cpu" or "mps"') from None


def check_optimizers(optimizer: Any) -> tuple[Optimizer, ...]:
    """Return one optimizer or several as a tuple.

    Raises:
        UsageError: there is none, or something is not an optimizer.
    """
    optimizers = as_tuple(optimizer)
    wrong = [candidate for candidate in optimizers if not isinstance(candidate, Optimizer)]
    if wrong or not optimizers:
        got = _describe(wrong[0]) if wrong else "empty" if isinstance(optimizer, (list, tuple)) else "None"
        raise UsageError(f"optimizer is {got}", "pass a torch.optim.Optimizer, or a list of them")
    return optimizers
