"""Text that is safe to show: names of folders and strings of files may hold anything."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

_INDENT = 4


def printable(text: str) -> str:
    """The text with every character that a terminal would obey, or can't show, replaced by a question mark."""
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)


def body_line(line: str, style: str = "") -> RenderableType:
    """A line under a heading; a command stays in one piece, so that it can be copied."""
    if line.startswith("$ "):
        return Text(" " * _INDENT + line, "green", no_wrap=True, overflow="ignore")
    return Padding(Text(line, style), (0, 0, 0, _INDENT))
