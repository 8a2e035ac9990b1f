"""Names that don't exist: the nearest one that does, and the place of a name in a command."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from ..._problem import Edit, Span
from ...sources import CommandLine, Word

# Values that a shell, a template or a reader fills in.
_PLACEHOLDER = re.compile(r"[${}<>*?\[\]…]|\.\.\.|^%")


def is_placeholder(text: str) -> bool:
    """Return True if a text stands for another one: `$FIELDS`, `{name}`, `<fields>`, `...`."""
    return not text or _PLACEHOLDER.search(text) is not None


def nearest(name: str, names: Collection[str], cutoff: float = 0.75) -> str | None:
    """Return the name that is most like one that doesn't exist; None if none is like it."""
    plain = re.sub(r"[\W_]", "", name).lower()
    for other in names:
        if re.sub(r"[\W_]", "", other).lower() == plain:
            return other
    matches = difflib.get_close_matches(name, names, 1, cutoff)
    return matches[0] if matches else None


def place_in_word(command: CommandLine, word: Word, part: str, after: int = 0) -> tuple[Span, int]:
    """Return the place of a part of a word, or that of the word, and where the search for the next part starts."""
    raw = command.text[word.start : word.end]
    start = raw.find(part, after)
    if start < 0:
        return command.span_of(word), after
    end = start + len(part)
    span = command.place(word.start + start, word.start + end)
    return span or command.span, end


def replacement(span: Span, command: CommandLine, name: str) -> tuple[Edit, ...]:
    """Return the edit that writes another name; none if the place is only that of the whole command."""
    return () if span == command.span else (Edit(span, name),)
