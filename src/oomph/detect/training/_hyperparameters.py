"""Hyperparameters of a training run, under YOLOv5's names."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .._yaml import quote, read_yaml
from ..dataset import Augmentation
from ..model import LossGains

OPTIMIZERS = ("SGD", "AdamW")


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters of a training run; the defaults are YOLOv5's for training from scratch.

    Attributes:
        optimizer: "SGD" with Nesterov momentum, or "AdamW" with `momentum` as its first beta.
        lr0: initial learning rate.
        lrf: final learning rate as a fraction of `lr0`.
        cos_lr: decay the learning rate along a cosine instead of a line.
        momentum: momentum of the optimizer.
        weight_decay: weight decay of convolution weights, scaled to the batch.
        warmup_epochs, warmup_momentum, warmup_bias_lr: length and initial values of the warm-up.
        min_warmup_iterations: minimum length of the warm-up.
        nominal_batch: images per optimizer step, for any batch.
        same_updates: make the same updates with every batch that divides the nominal one, so that runs compare: each
            epoch ends with an update, and the warm-up accumulates as many images as the rest and is counted in updates.
        clip_grad_norm: maximum norm of a step's gradient.
        anchor_t: maximum ratio between the sides of a box and of its anchor.
        label_smoothing: distance of the class targets from 0 and 1, in total.
        box, obj, cls: gains of the loss parts.
        mosaic, mixup, hsv_h, hsv_s, hsv_v, degrees, shear, translate, scale, perspective, flipud, fliplr: see
            `Augmentation`.
    """

    optimizer: str = "SGD"
    lr0: float = 0.01
    lrf: float = 0.01
    cos_lr: bool = False
    momentum: float = 0.937
    weight_decay: float = 5e-4
    warmup_epochs: float = 3.0
    warmup_momentum: float = 0.8
    warmup_bias_lr: float = 0.1
    min_warmup_iterations: int = 100
    nominal_batch: int = 64
    same_updates: bool = False
    clip_grad_norm: float = 10.0
    anchor_t: float = 4.0
    label_smoothing: float = 0.0
    box: float = 0.05
    obj: float = 1.0
    cls: float = 0.5
    mosaic: float = 1.0
    mixup: float = 0.0
    hsv_h: float = 0.015
    hsv_s: float = 0.7
    hsv_v: float = 0.4
    degrees: float = 0.0
    shear: float = 0.0
    translate: float = 0.1
    scale: float = 0.5
    perspective: float = 0.0
    flipud: float = 0.0
    fliplr: float = 0.5

    @property
    def gains(self) -> LossGains:
        """The gains of the loss parts."""
        return LossGains(self.box, self.obj, self.cls)

    @property
    def augmentation(self) -> Augmentation:
        """The strength of the augmentations."""
        return Augmentation(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Augmentation)})


_FRACTIONS = {"label_smoothing", "mosaic", "mixup", "flipud", "fliplr", "momentum", "warmup_momentum"}
_BOOLEANS = {"cos_lr", "same_updates"}
_MIN_INTEGERS = {"nominal_batch": 1, "min_warmup_iterations": 0}
# YOLOv5's names without an effect here: the accepted values (any if empty), and why others are not supported.
_WITHOUT_EFFECT: dict[str, tuple[tuple[float, ...], str]] = {
    "cls_pw": ((1.0,), "positives are not weighted"),
    "obj_pw": ((1.0,), "positives are not weighted"),
    "fl_gamma": ((0.0,), "focal loss is not supported"),
    "copy_paste": ((0.0,), "copy-paste needs segments, and labels are boxes"),
    "iou_t": ((), "YOLOv5 itself doesn't use it"),
    "anchors": ((3.0,), "every level has three anchors"),
}


def read_hyperparameters(path: Path) -> Hyperparameters:
    """Read a YOLOv5 hyp yaml; names that it doesn't contain keep their defaults.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it isn't a YAML mapping, or has an unknown name or invalid value.
    """
    return parse_hyperparameters(read_yaml(path), str(path))


def parse_hyperparameters(
    values: Mapping[str, Any],
    source: str = "the settings file",
    base: Hyperparameters | None = None,
    other_names: Iterable[str] = (),
) -> Hyperparameters:
    """Check names and values, and return `base` with these values.

    Args:
        values: names and values.
        source: where they are from, for error messages.
        base: values of names that are not given; the defaults if None.
        other_names: further valid names, for suggestions.

    Raises:
        UsageError: a name is unknown or a value is invalid.
    """
    changes: dict[str, Any] = {}
    names = [field.name for field in dataclasses.fields(Hyperparameters)]
    for name, value in values.items():
        if name in _WITHOUT_EFFECT:
            _check_without_effect(name, value, source)
        elif name in names:
            changes[name] = _parse_value(name, value, source)
        else:
            nearest = difflib.get_close_matches(name, [*names, *other_names], n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else "docs/train.md lists the names"
            raise UsageError(f"{source} sets {name!r}, which is not a setting", f"remove it; {hint}".removesuffix("?"))
    return dataclasses.replace(base or Hyperparameters(), **changes)


def names_without_effect(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that are accepted for compatibility but have no effect."""
    return tuple(name for name in values if name in _WITHOUT_EFFECT)


def _parse_value(name: str, value: Any, source: str) -> Any:
    if name == "optimizer":
        return _parse_optimizer(value, source)
    if name in _BOOLEANS:
        if not isinstance(value, bool):
            raise UsageError(f"{source} sets {name} to {quote(value)}", "write true or false")
        return value
    number = _parse_number(name, value, source)
    if name in _MIN_INTEGERS:
        minimum = _MIN_INTEGERS[name]
        if number != int(number) or number < minimum:
            raise UsageError(f"{source} sets {name} to {quote(value)}", f"write an integer of at least {minimum}")
        return int(number)
    if name in _FRACTIONS and number > 1:
        raise UsageError(f"{source} sets {name} to {quote(value)}", "write a number from 0 to 1")
    return number


def _parse_optimizer(value: Any, source: str) -> str:
    for name in OPTIMIZERS:
        if str(value).lower() == name.lower():
            return name
    raise UsageError(f"{source} sets optimizer to {quote(value)}", f"choose {' or '.join(OPTIMIZERS)}")


def _parse_number(name: str, value: Any, source: str) -> float:
    try:
        number = float(value)  # YAML reads 5e-4 as a string
    except (TypeError, ValueError):
        raise UsageError(f"{source} sets {name} to {quote(value)}", "write a number") from None
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise UsageError(f"{source} sets {name} to {quote(value)}", "write a number of at least 0")
    return number


def _check_without_effect(name: str, value: Any, source: str) -> None:
    accepted, reason = _WITHOUT_EFFECT[name]
    number = _parse_number(name, value, source)
    if accepted and number not in accepted:
        raise UsageError(f"{source} sets {name} to {number:g}: {reason}", f"set it to {accepted[0]:g} or remove it")
