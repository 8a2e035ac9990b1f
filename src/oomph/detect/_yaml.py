"""YAML files, read as plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ..errors import MissingFile, UsageError

_MAX_QUOTED = 60  # characters
_MAX_REASON = 160


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the mapping in a YAML file.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it can't be read, or isn't a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        raise MissingFile(f"there is no file '{path}'", "check the path") from None
    except OSError as error:
        raise UsageError(f"{path} can't be read ({error.strerror})", "pass a YAML file") from None
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())[:_MAX_REASON]
        raise UsageError(f"{path} is not valid YAML ({reason})", "fix the file") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path} contains a {type(content).__name__}, not a mapping", "write `name: value` lines")
    return {str(name): value for name, value in content.items()}


def quote(value: object) -> str:
    """Return the repr of a user's value for a message, truncated to 60 characters."""
    text = repr(value)
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
