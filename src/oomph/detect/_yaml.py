"""Yaml files, read as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..errors import MissingFile, UsageError


def read_yaml(path: Path) -> dict[str, Any]:
    """The map that a yaml file holds.

    Raises:
        MissingFile: there is no such file.
        UsageError: it can't be read, or holds something else than a map.
    """
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        raise MissingFile(f"there is no file '{path}'", "check the path") from None
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror})", "name a yaml file") from None
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        words = " ".join(str(error).split())[:160]
        raise UsageError(f"{path} is no yaml ({words})", "mend the file") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} holds {type(found).__name__} and no names with values", "write `name: value` lines")
    return {str(name): value for name, value in found.items()}
