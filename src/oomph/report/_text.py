"""Text helpers for reports."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

_INDENT = 4
_GAP = "..."


def printable(text: str) -> str:
    """Replace control and other unprintable characters by question marks: file names and logs may contain any bytes."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def cut_middle(text: str, length: int) -> str:
    """Leave out the middle of a long text and replace unprintable characters: paths differ at their ends."""
    text, kept = printable(text), (length - len(_GAP)) // 2
    return text if len(text) <= length else f"{text[:kept]}{_GAP}{text[-kept:]}"


def duration(seconds: float) -> str:
    """Return the time of a step as text: `"1.25 s"`, `"54 ms"`."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def body_line(line: str, style: str = "") -> RenderableType:
    """Return an indented line; a command is never wrapped, so that it can be copied."""
    if line.startswith("$ "):
        return Text(" " * _INDENT + line, "green", no_wrap=True, overflow="ignore")
    return Padding(Text(line, style), (0, 0, 0, _INDENT))
