"""The configuration of a run as saved in its folder, so that it can be resumed without repeating the flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ... import document
from ...errors import InvalidFile, MissingFile
from ._config import TrainConfig
from ._run_dir import has_state

CONFIG_FILE = "config.json"
_KIND, _VERSION = "training-config", 1


@dataclass(frozen=True)
class SavedConfig:
    """The configuration of a run.

    Attributes:
        requested: as the user requested it.
        resolved: with the batch, image size and precision of the plan, which a resumed run keeps.
    """

    requested: TrainConfig
    resolved: TrainConfig


def config_document(config: SavedConfig) -> dict[str, Any]:
    """Return the content of the config file, with absolute paths."""
    absolute = SavedConfig(_with_absolute_paths(config.requested), _with_absolute_paths(config.resolved))
    return document.write(_KIND, _VERSION, absolute)


def load_config(run_dir: Path) -> SavedConfig:
    """Load the configuration of a run; its folder may have been moved.

    Raises:
        MissingFile: the folder has no checkpoint or no config file.
        InvalidFile: the config file can't be read.
    """
    if not has_state(run_dir):
        raise MissingFile(
            f"there is no checkpoint in '{run_dir}'", "pass the folder of another run, or start a new one"
        )
    path = run_dir / CONFIG_FILE
    try:
        saved = document.read(_KIND, _VERSION, SavedConfig, document.load(path))
    except InvalidFile as error:
        raise InvalidFile(f"{path} can't be used: {error.why}", "start a new run") from None
    return SavedConfig(replace(saved.requested, run_dir=run_dir), replace(saved.resolved, run_dir=run_dir))


def _with_absolute_paths(config: TrainConfig) -> TrainConfig:
    return replace(
        config,
        data=config.data.absolute(),
        run_dir=config.run_dir.absolute(),
        weights=_absolute(config.weights),
        teacher=_absolute(config.teacher),
    )


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
