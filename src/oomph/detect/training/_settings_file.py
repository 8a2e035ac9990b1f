"""Everything about a run that has no flag, in one yaml file; a YOLOv5 hyp file is one too.

What a field of the order form or of the recipe is called is what it is called in the file. A new field of the order
form is a new name in the file, unless `FLAGS` says that it is a flag.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from ...errors import UsageError
from .._yaml import read_yaml
from ._config import OrderForm
from ._hyperparameters import neutral_names, recipe_from

# Fields that are given on the command line, and as what.
FLAGS = {
    "data": "--data",
    "folder": "--name",
    "network": "--cfg",
    "weights": "--weights",
    "size": "--img",
    "batch": "--batch",
    "epochs": "--epochs",
    "device": "--device",
    "threads": "--workers",
    "budget": "--budget",
    "spare": "--budget",
    "allow": "--allow",
}
# What users of YOLOv5 would write: our field.
_NAMES = {"single_cls": "single_class"}
_SPELLINGS = {"cfg": "--cfg", "img": "--img", "imgsz": "--img", "workers": "--workers", "name": "--name"}
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def read_settings(path: Path, form: OrderForm) -> tuple[OrderForm, tuple[str, ...]]:
    """An order form with what a settings file or a YOLOv5 hyp yaml says, and sentences about what changes nothing.

    Raises:
        MissingFile: there is no such file.
        UsageError: it is no yaml map, has a name that nobody knows or a value that can't be taken.
    """
    values, place = read_yaml(path), str(path)
    known = _order_names()
    own: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in values.items():
        field = _NAMES.get(name, name)
        flag = FLAGS.get(name) or _SPELLINGS.get(name)
        if flag is not None:
            raise UsageError(f"{place} sets {name!r}, which has a flag", f"take it out and write {flag}")
        if field in known:
            own[field] = _typed(known[field], name, value, place)
        else:
            rest[name] = value
    recipe = recipe_from(rest, place, form.recipe, beside=[*known, *_NAMES])
    idle = neutral_names(rest)
    words = (f"{place}: {', '.join(idle)} change{'s' * (len(idle) == 1)} nothing here",) if idle else ()
    return replace(form, **own, recipe=recipe), words


def settings_text(form: OrderForm) -> str:
    """All that a settings file can say of a run, as yaml; read again, it is the same."""
    values: dict[str, Any] = {name: getattr(form, name) for name in _order_names()}
    values |= dataclasses.asdict(form.recipe)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def changed_settings(form: OrderForm) -> tuple[str, ...]:
    """What differs from the defaults, each in a few words."""
    usual = _flat(OrderForm(data=form.data, folder=form.folder))
    return tuple(f"{name} {value} (not {usual[name]})" for name, value in _flat(form).items() if value != usual[name])


def _flat(form: OrderForm) -> dict[str, Any]:
    own = {name: getattr(form, name) for name in _order_names()}
    return own | dict(_pairs(dataclasses.asdict(form.recipe)))


def _pairs(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _pairs(value, f"{name}.")
        else:
            yield f"{prefix}{name}", value


def _order_names() -> dict[str, Any]:
    """The fields of the order form that belong into the file, with their types."""
    hints = get_type_hints(OrderForm)
    return {one.name: hints[one.name] for one in dataclasses.fields(OrderForm) if one.name not in {*FLAGS, "recipe"}}


def _typed(hint: Any, name: str, value: Any, place: str) -> Any:
    """A value of the type that a field has; whole numbers are taken for others too."""
    kinds = get_args(hint) or (hint,)
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
            return value
    wanted = " or ".join(_WORDS[kind] for kind in kinds if kind in _WORDS)
    raise UsageError(f"{place} sets {name} to {value!r}", f"it must be {wanted or 'something else'}")
