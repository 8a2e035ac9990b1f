"""Lines of a source text, as Python counts them."""

from __future__ import annotations

import re

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")


def split_lines(text: str) -> list[str]:
    """Return the lines with their ends; unlike `str.splitlines`, a form feed or other separator ends no line."""
    return _LINE.findall(text)
