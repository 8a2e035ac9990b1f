"""Words of shell commands, as a shell would split them."""

from __future__ import annotations

from dataclasses import dataclass

_BLANKS = " \t\r\f\v"
_SEPARATORS = ";|&\n()`"


@dataclass(frozen=True)
class Word:
    """A word of a command.

    Attributes:
        text: The word without quotes and escapes.
        start: Its first character in the command.
        end: The character after its last one, including quotes.
    """

    text: str
    start: int
    end: int


def split_words(text: str) -> list[tuple[Word, ...]]:
    """Return the words of every simple command of a text; comments and the targets of redirections are left out."""
    return _Splitter(text).split()


class _Splitter:
    """Reads a text once from left to right; a `$(…)` is a command of its own and a part of no word."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._commands: list[tuple[Word, ...]] = []
        self._words: list[Word] = []
        self._outer: list[tuple[list[Word], str]] = []  # commands around a `$(…)`, and the quote that it is in
        self._start: int | None = None
        self._characters: list[str] = []
        self._quote = ""
        self._is_target = False

    def split(self) -> list[tuple[Word, ...]]:
        while self._position < len(self._text):
            self._read(self._text[self._position])
            self._position += 1
        self._end_command()
        while self._outer:
            self._words, self._quote = self._outer.pop()
            self._end_command()
        return self._commands

    def _read(self, character: str) -> None:
        following = self._text[self._position + 1 : self._position + 2]
        if self._quote == "'":
            self._read_quoted(character)
        elif character == "\\" and following:
            self._begin_word()
            self._position += 1
            if self._quote and following not in '"\\$`\n':
                self._characters.append(character)
            self._characters.append(following)
        elif self._text.startswith("$((", self._position):
            self._begin_word()
            end = self._text.find("))", self._position)
            self._position = len(self._text) if end < 0 else end + 1
        elif character in "$<>" and following == "(":
            self._open()
        elif character == ")" and self._outer:
            self._close()
        elif self._quote:
            self._read_quoted(character)
        else:
            self._read_plain(character)

    def _read_quoted(self, character: str) -> None:
        if character == self._quote:
            self._quote = ""
        else:
            self._begin_word()
            self._characters.append(character)

    def _read_plain(self, character: str) -> None:
        if character in _BLANKS:
            self._end_word()
        elif character in {'"', "'"}:
            self._begin_word()
            self._quote = character
        elif character == "#" and self._start is None:
            end = self._text.find("\n", self._position)
            self._position = len(self._text) if end < 0 else end - 1
        elif character in "<>":
            self._redirect()
        elif character in _SEPARATORS:
            self._end_command()
        else:
            self._begin_word()
            self._characters.append(character)

    def _redirect(self) -> None:
        """Skip `>`, `>>`, `2>` and `>&1`; the word after it is a file."""
        if self._characters and "".join(self._characters).isdigit():
            self._characters, self._start = [], None
        self._end_word()
        while self._text[self._position + 1 : self._position + 2] in {">", "<", "&", "|"}:
            self._position += 1
        self._is_target = True

    def _open(self) -> None:
        self._end_word()
        self._outer.append((self._words, self._quote))
        self._words, self._quote = [], ""
        self._position += 1

    def _close(self) -> None:
        self._end_command()
        self._words, self._quote = self._outer.pop()

    def _begin_word(self) -> None:
        if self._start is None:
            self._start = self._position

    def _end_word(self) -> None:
        if self._start is None:
            return
        if not self._is_target:
            end = min(self._position, len(self._text))
            self._words.append(Word("".join(self._characters), self._start, end))
        self._start, self._characters, self._is_target = None, [], False

    def _end_command(self) -> None:
        self._end_word()
        self._is_target = False
        if self._words:
            self._commands.append(tuple(self._words))
        self._words = []
