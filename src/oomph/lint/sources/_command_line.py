"""Shell commands: their text with the place of every part in the file, and their words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from .._problem import Span
from ._shell_words import Word, split_words

_MAX_CHARS = 20_000  # a longer command is data
_MAX_DEPTH = 3  # of commands in quotes: `watch "bash -c '…'"`


@dataclass(frozen=True)
class CommandPart:
    """A stretch of a command's text that is written as it is at one place of the file.

    Attributes:
        start: Its first character in the command's text.
        end: The character after its last one.
        line: Its line in the file or cell.
        column: The column of its first character.
    """

    start: int
    end: int
    line: int
    column: int


@dataclass(frozen=True)
class CommandLine:
    """A shell command: of a script, of a fence, after `!` in a notebook, or in a string that Python runs.

    Attributes:
        text: The command; lines that end with a backslash are joined.
        span: Its place in the file.
        parts: Where the stretches of the text are in the file; a string with escapes has none.
        is_escaped: True if it follows the `!` or `%` of a notebook.
        is_string: True if it is a string in Python.
    """

    text: str
    span: Span
    parts: tuple[CommandPart, ...] = field(default=(), compare=False)
    is_escaped: bool = False
    is_string: bool = False

    @cached_property
    def commands(self) -> tuple[tuple[Word, ...], ...]:
        """The words of each simple command: those between `;`, `|` and `&&`, in `$(…)`, and in quotes."""
        if len(self.text) > _MAX_CHARS:
            return ()
        return tuple(_with_quoted(self.text, 0, 0))

    def place(self, start: int, end: int) -> Span | None:
        """Return the place of some characters of the text; None if the file has them in another form."""
        for part in self.parts:
            if part.start <= start and end <= part.end:
                column = part.column + start - part.start
                return Span(self.span.cell, part.line, column, part.line, column + end - start)
        return None

    def span_of(self, word: Word) -> Span:
        """Return the place of a word, or that of the whole command if it has none of its own."""
        return self.place(word.start, word.end) or self.span


def _with_quoted(text: str, offset: int, depth: int) -> Iterator[tuple[Word, ...]]:
    for words in split_words(text):
        moved = tuple(Word(word.text, word.start + offset, word.end + offset) for word in words)
        yield moved
        if depth == _MAX_DEPTH:
            continue
        for word in words:
            raw = text[word.start : word.end]
            if " " in word.text and raw[:1] in {'"', "'"} and raw[1:-1] == word.text:
                yield from _with_quoted(word.text, offset + word.start + 1, depth + 1)
