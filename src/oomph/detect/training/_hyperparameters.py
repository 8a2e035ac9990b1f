"""The hyperparameters of a training run, under our names and YOLOv5's."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import UsageError
from .._yaml import read_yaml
from ..dataset._augmentation import Augmentation
from ..model._loss import Gains


@dataclass(frozen=True)
class Recipe:
    """How a detector is trained; the defaults are YOLOv5's for training from scratch.

    Attributes:
        optimizer: "SGD" with Nesterov momentum, or "AdamW", whose first beta is the momentum.
        rate, final_rate: the learning rate, and the share of it that is left at the end.
        cosine: whether it falls along half a cosine and not in a straight line.
        momentum, decay: of SGD; the decay is for convolution weights alone and is scaled to the batch.
        warmup_epochs, warmup_momentum, warmup_bias_rate: how the run begins.
        least_warmup: iterations that the warm-up lasts at least.
        nominal_batch: images that an optimizer step is made of, whatever the batch.
        clip: the largest norm of a step's gradient.
        anchor_ratio: how many times larger or smaller than its anchor a box may be.
        label_smoothing: what the targets of the classes keep away from 0 and 1, together.
        gains: what the parts of the loss weigh.
        augmentation: how training samples are changed.
    """

    optimizer: str = "SGD"
    rate: float = 0.01
    final_rate: float = 0.01
    cosine: bool = False
    momentum: float = 0.937
    decay: float = 5e-4
    warmup_epochs: float = 3.0
    warmup_momentum: float = 0.8
    warmup_bias_rate: float = 0.1
    least_warmup: int = 100
    nominal_batch: int = 64
    clip: float = 10.0
    anchor_ratio: float = 4.0
    label_smoothing: float = 0.0
    gains: Gains = field(default_factory=Gains)
    augmentation: Augmentation = field(default_factory=Augmentation)


OPTIMIZERS = ("SGD", "AdamW")
# YOLOv5's name: ours, with the dot of the part it belongs to.
_NAMES = {
    "lr0": "rate",
    "lrf": "final_rate",
    "cos_lr": "cosine",
    "momentum": "momentum",
    "weight_decay": "decay",
    "warmup_epochs": "warmup_epochs",
    "warmup_momentum": "warmup_momentum",
    "warmup_bias_lr": "warmup_bias_rate",
    "anchor_t": "anchor_ratio",
    "box": "gains.box",
    "obj": "gains.objectness",
    "cls": "gains.classes",
    "hsv_h": "augmentation.hue",
    "hsv_s": "augmentation.saturation",
    "hsv_v": "augmentation.value",
    "degrees": "augmentation.degrees",
    "translate": "augmentation.translate",
    "scale": "augmentation.scale",
    "shear": "augmentation.shear",
    "perspective": "augmentation.perspective",
    "flipud": "augmentation.flip_vertical",
    "fliplr": "augmentation.flip_horizontal",
    "mosaic": "augmentation.mosaic",
    "mixup": "augmentation.mixup",
}
_SHARES = {"label_smoothing", "mosaic", "mixup", "flip_vertical", "flip_horizontal", "momentum", "warmup_momentum"}
# Names that are taken when they ask for nothing: the value that does, and why another can't be had.
_NEUTRAL: dict[str, tuple[tuple[float, ...], str]] = {
    "cls_pw": ((1.0,), "positives are not weighed here"),
    "obj_pw": ((1.0,), "positives are not weighed here"),
    "fl_gamma": ((0.0,), "there is no focal loss here"),
    "copy_paste": ((0.0,), "boxes have no outlines that could be cut out and pasted"),
    "iou_t": ((), "YOLOv5 itself doesn't use it"),
    "anchors": ((3.0,), "every level has three anchors"),
}


def read_recipe(path: Path) -> Recipe:
    """Read a settings file or a YOLOv5 hyp yaml; what it doesn't say stays at its default.

    Raises:
        MissingFile: there is no such file.
        UsageError: it is no yaml map, has a name that nobody knows or a value that can't be taken.
    """
    return recipe_from(read_yaml(path), str(path))


def recipe_from(
    values: Mapping[str, Any], place: str = "the settings", base: Recipe | None = None, beside: Iterable[str] = ()
) -> Recipe:
    """A recipe from names and values, YOLOv5's or ours ("rate", "augmentation.mosaic").

    Args:
        values: the names and values; maps inside of it are the recipe's parts.
        place: where they are from, for complaints.
        base: what holds where they say nothing; the defaults if None.
        beside: names that are taken elsewhere, which a wrong one may have meant.

    Raises:
        UsageError: a name that nobody knows, or a value that can't be taken.
    """
    base = base or Recipe()
    parts: dict[str, dict[str, Any]] = {"": {}, "gains": {}, "augmentation": {}}
    for name, value in _flat(values).items():
        if name in _NEUTRAL:
            _refuse_unless_neutral(name, _number(name, value, place), place)
            continue
        part, dot, own = _known(name, place, beside).rpartition(".")
        parts[part if dot else ""][own] = _value(name, own, value, place)
    return dataclasses.replace(
        base,
        **parts[""],
        gains=dataclasses.replace(base.gains, **parts["gains"]),
        augmentation=dataclasses.replace(base.augmentation, **parts["augmentation"]),
    )


def neutral_names(values: Mapping[str, Any]) -> tuple[str, ...]:
    """Those names that ask for nothing here, whatever has them."""
    return tuple(name for name in values if name in _NEUTRAL)


def _value(name: str, own: str, value: Any, place: str) -> Any:
    if own == "optimizer":
        return _optimizer(value, place)
    if own == "cosine":
        if not isinstance(value, bool):
            raise UsageError(f"{place} sets {name} to {value!r}", "it must be true or false")
        return value
    number = _number(name, value, place)
    if own in {"nominal_batch", "least_warmup"}:
        least = 1 if own == "nominal_batch" else 0
        if number != int(number) or number < least:
            raise UsageError(f"{place} sets {name} to {value!r}", f"it must be a whole number of at least {least}")
        return int(number)
    if own in _SHARES and number > 1:
        raise UsageError(f"{place} sets {name} to {value!r}", "it must be between 0 and 1")
    return number


def _optimizer(value: Any, place: str) -> str:
    for known in OPTIMIZERS:
        if str(value).lower() == known.lower():
            return known
    raise UsageError(f"{place} sets optimizer to {value!r}", f"it must be one of {', '.join(OPTIMIZERS)}")


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Maps inside the map become names with dots."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update({f"{name}.{inner}": item for inner, item in value.items()})
        else:
            flat[str(name)] = value
    return flat


def _own_names() -> set[str]:
    names = {one.name for one in dataclasses.fields(Recipe)} - {"gains", "augmentation"}
    for part, cls in (("gains", Gains), ("augmentation", Augmentation)):
        names |= {f"{part}.{one.name}" for one in dataclasses.fields(cls)}
    return names


def _known(name: str, place: str, beside: Iterable[str]) -> str:
    if name in _NAMES:
        return _NAMES[name]
    own = _own_names()
    if name in own:
        return name
    nearest = difflib.get_close_matches(name, [*_NAMES, *own, *beside], n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "see docs/train.md for the names"
    raise UsageError(f"{place} sets {name!r}, which nothing here is called", f"take it out; {hint}".removesuffix("?"))


def _number(name: str, value: Any, place: str) -> float:
    try:
        number = float(value)  # yaml reads 5e-4 as a text
    except (TypeError, ValueError):
        raise UsageError(f"{place} sets {name} to {value!r}", "it must be a number") from None
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise UsageError(f"{place} sets {name} to {value!r}", "it must be a number of at least 0")
    return number


def _refuse_unless_neutral(name: str, number: float, place: str) -> None:
    neutral, why = _NEUTRAL[name]
    if neutral and number not in neutral:
        raise UsageError(f"{place} sets {name} to {number:g}: {why}", f"set it to {neutral[0]:g} or take it out")


def parameter_groups(model: nn.Module, recipe: Recipe, batch: int) -> list[dict[str, Any]]:
    """Groups for an optimizer: weights that decay, biases, weights that don't (BatchNorm's).

    Those that decay come first: so SGD takes all memory that it needs before it writes. Each has a `name`, by which
    `set_rates` finds it. `batch` is that of an iteration over all ranks.
    """
    biases: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "bias":
                biases.append(parameter)
            elif isinstance(module, nn.modules.batchnorm._BatchNorm):  # noqa: SLF001  torch's common base of them
                others.append(parameter)
            else:
                decayed.append(parameter)
    accumulate = max(round(recipe.nominal_batch / batch), 1)
    decay = recipe.decay * batch * accumulate / recipe.nominal_batch
    return [
        {"params": decayed, "weight_decay": decay, "name": "weights"},
        {"params": biases, "weight_decay": 0.0, "name": "biases"},
        {"params": others, "weight_decay": 0.0, "name": "norms"},
    ]


def freeze(model: nn.Module, layers: int) -> int:
    """Keep the first layers of a network as they are; 10 are its backbone. Returns how many parameters that holds."""
    held = 0
    for index, layer in enumerate(model.get_submodule("model").children()):
        for parameter in layer.parameters() if index < layers else ():
            parameter.requires_grad = False
            held += parameter.numel()
    return held


def build_optimizer(
    model: nn.Module, recipe: Recipe, batch: int, *, fused: bool | None = None
) -> torch.optim.Optimizer:
    """The recipe's optimizer over those groups; `fused` is torch's."""
    groups = parameter_groups(model, recipe, batch)
    if recipe.optimizer == "AdamW":
        return torch.optim.AdamW(groups, lr=recipe.rate, betas=(recipe.momentum, 0.999), fused=fused)
    return torch.optim.SGD(groups, lr=recipe.rate, momentum=recipe.momentum, nesterov=True, fused=fused)
