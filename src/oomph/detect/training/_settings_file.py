"""The settings file: every setting of a run that has no flag. A YOLOv5 hyp file is a valid settings file.

Names in the file are the fields of `TrainConfig` and `Hyperparameters`. A new field of `TrainConfig` becomes a name in
the file unless `FLAGS` lists it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from ...errors import UsageError
from .._yaml import quote, read_yaml
from ._config import TrainConfig
from ._hyperparameters import names_without_effect, parse_hyperparameters

# Fields of TrainConfig with a flag.
FLAGS = {
    "data": "--data",
    "run_dir": "--name",
    "cfg": "--cfg",
    "weights": "--weights",
    "widths": "--weights",
    "imgsz": "--img",
    "batch": "--batch",
    "epochs": "--epochs",
    "device": "--device",
    "workers": "--workers",
    "budget": "--budget",
    "budget_above_start": "--budget",
    "allow": "--allow",
    "plan": "--plan",
    "teacher": "--teacher to oomph shrink distill",
}
# Other spellings of flags that users may write into the file.
_FLAG_SPELLINGS = {"img": "--img", "img_size": "--img", "batch_size": "--batch", "name": "--name"}
_TYPE_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string"}


def read_settings(path: Path, config: TrainConfig) -> tuple[TrainConfig, tuple[str, ...]]:
    """Apply a settings file or YOLOv5 hyp yaml to a config; return it with notes about names without effect.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it isn't a YAML mapping, or has an unknown name or invalid value.
    """
    return change_settings(config, read_yaml(path), str(path))


def change_settings(config: TrainConfig, values: Mapping[str, Any], source: str) -> tuple[TrainConfig, tuple[str, ...]]:
    """Return a config with the values of settings by name, and notes about names without effect.

    Args:
        config: the config.
        values: names and values, as in a settings file.
        source: where they are from, for error messages.

    Raises:
        UsageError: a name is unknown or a value is invalid.
    """
    types = _setting_types()
    changes: dict[str, Any] = {}
    hyperparameters: dict[str, Any] = {}
    for name, value in values.items():
        flag = FLAGS.get(name) or _FLAG_SPELLINGS.get(name)
        if flag is not None:
            raise UsageError(f"{source} sets {name!r}, which is a flag", f"remove it and pass {flag}")
        if name in types:
            changes[name] = _check_type(types[name], name, value, source)
        else:
            hyperparameters[name] = value
    hyp = parse_hyperparameters(hyperparameters, source, config.hyp, other_names=types)
    unused = names_without_effect(hyperparameters)
    notes = (f"{source}: {', '.join(unused)} {'has' if len(unused) == 1 else 'have'} no effect",) if unused else ()
    return replace(config, **changes, hyp=hyp), notes


def settings_text(config: TrainConfig) -> str:
    """Return a settings file with every setting of a run."""
    return yaml.safe_dump(_all_settings(config), sort_keys=False, allow_unicode=True)


def changed_settings(config: TrainConfig) -> tuple[str, ...]:
    """Describe the settings that differ from their defaults."""
    defaults = _all_settings(TrainConfig(data=config.data, run_dir=config.run_dir))
    return tuple(
        f"{name} {value} (default {defaults[name]})"
        for name, value in _all_settings(config).items()
        if value != defaults[name]
    )


def _all_settings(config: TrainConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in _setting_types()} | dataclasses.asdict(config.hyp)


def _setting_types() -> dict[str, Any]:
    """Return the types of TrainConfig's fields that belong in the file."""
    hints = get_type_hints(TrainConfig)
    names = [item.name for item in dataclasses.fields(TrainConfig)]
    return {name: hints[name] for name in names if name not in {*FLAGS, "hyp"}}


def _check_type(hint: Any, name: str, value: Any, source: str) -> Any:
    """Return a value of the field's type; an integer is accepted for a float."""
    types = get_args(hint) or (hint,)
    if value is None and type(None) in types:
        return None
    for kind in types:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
            return value
    expected = " or ".join(_TYPE_NAMES[kind] for kind in types if kind in _TYPE_NAMES)
    raise UsageError(f"{source} sets {name} to {quote(value)}", f"write {expected}")
