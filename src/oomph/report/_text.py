"""Text that is safe to show: names of folders and strings of files may hold anything."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with every character that a terminal would obey, or can't show, replaced by a question mark."""
    return text if text.isprintable() else "".join(one if one.isprintable() else "?" for one in text)
