"""A block of a log: its lines, and where words are in them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, islice

from ...units import KIB
from ._lines import clean
from ._word_index import to_shapes

TAIL_BYTES = 8 * KIB  # the pieces of a long line overlap by these
_PIECE_BYTES = 64 * KIB  # a longer line is read in pieces
_MANY_LINES = 2000  # lines whose search takes longer than that of the whole block
_MAX_SHAPES = 300  # of the lines of a block that are looked up one by one
_PROGRESS = re.compile(rb"\d%\||it/s|s/it|\b[Ee]poch\W{1,3}\d|\b[Ll]oss\W{1,3}\d")


class Block:
    """Lines that are read together.

    Attributes:
        lines: The last line of the block before, the lines of this one, and those after it for context.
        shapes: The shapes of the lines, without those after the block.
        is_cut: True if the last line goes on in the next block.
    """

    def __init__(self, lines: list[bytes], after: list[bytes], *, is_cut: bool) -> None:
        self.lines = lines + after
        self._text = b"\n".join(lines)
        self._shape_text = to_shapes(self._text)
        self.shapes = self._shape_text.split(b"\n")
        self.is_cut = is_cut
        # A line for each shape.
        self._examples = dict(zip(self.shapes[1:], lines[1:], strict=True))

    @cached_property
    def cleaned(self) -> dict[bytes, bytes]:
        """The shapes of lines without colors, by the shapes of the lines as they are."""
        text = b"\n".join(self._examples.values())
        if b"\x1b" not in text and b"&" not in text:
            return dict(zip(self._examples, self._examples, strict=True))
        shapes = to_shapes(clean(text.decode("utf-8", "replace")).encode("utf-8", "replace")).split(b"\n")
        return dict(zip(self._examples, shapes, strict=True))

    @cached_property
    def progress(self) -> list[int]:
        """The number of lines of progress in the block before each line; the last item counts all."""
        shapes = {shape for shape, line in self._examples.items() if _is_progress(shape, line)}
        return [0, *accumulate((shape in shapes for shape in self.shapes[1:]), initial=0)]

    @property
    def is_uniform(self) -> bool:
        """True if the lines have few shapes."""
        return len(self._examples) <= _MAX_SHAPES

    @cached_property
    def is_ascii(self) -> bool:
        """True if no line has other characters."""
        return self._text.isascii()

    def lines_with(self, words: bytes, numbers: Sequence[int], count: int) -> list[int]:
        """Return the first and the last of some lines that contain words."""
        if len(numbers) > _MANY_LINES and words not in self._text:
            return []
        first = _first_with(words, numbers, self.lines, count)
        return first if len(first) < count else first + _first_with(words, reversed(numbers), self.lines, count)

    def find(self, words: bytes, count: int) -> Iterator[int]:
        """Yield the first and the last lines that contain words."""
        return _find_lines(words, self._text, self._starts, count)

    def find_in_shapes(self, words: bytes, count: int) -> Iterator[int]:
        """Yield the first and the last lines whose shapes contain words."""
        return _find_lines(words, self._shape_text, self._shape_starts, count)

    @cached_property
    def _starts(self) -> list[int]:
        return list(accumulate((len(line) + 1 for line in self.lines[: len(self.shapes)]), initial=0))

    @cached_property
    def _shape_starts(self) -> list[int]:
        return list(accumulate((len(shape) + 1 for shape in self.shapes), initial=0))

    def is_incomplete(self, number: int) -> bool:
        """Return True if a line goes on: in its next piece or in the next block."""
        return len(self.lines[number]) == _PIECE_BYTES or (self.is_cut and number == len(self.shapes) - 1)


def split_lines(raw: bytes) -> list[bytes]:
    """Split a text at line breaks, and where progress bars are drawn again; long lines become pieces that overlap."""
    if b"\r" in raw:
        raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    lines = raw.translate(None, b"\0").split(b"\n")
    if max(map(len, lines)) < _PIECE_BYTES:
        return lines
    step = _PIECE_BYTES - TAIL_BYTES
    return [
        line[start : start + _PIECE_BYTES]
        for line in lines
        for start in (range(0, len(line) - TAIL_BYTES, step) if len(line) >= _PIECE_BYTES else (0,))
    ]


def _is_progress(shape: bytes, line: bytes) -> bool:
    # Most lines are told apart faster without the pattern.
    if b"loss" in shape or b"epoch" in shape or b"it s" in shape or b"s it" in shape or b"%|" in line:
        return _PROGRESS.search(line) is not None
    return False


def _first_with(words: bytes, numbers: Iterable[int], lines: Sequence[bytes], count: int) -> list[int]:
    return list(islice((number for number in numbers if words in lines[number]), count))


def _find_lines(words: bytes, text: bytes, starts: Sequence[int], count: int) -> Iterator[int]:
    """Yield the first and the last lines with words, without the line before the block."""
    position = text.find(words, starts[1])
    for _ in range(count):
        if position < 0:
            return
        number = bisect_right(starts, position) - 1
        yield number
        position = text.find(words, starts[number + 1])
    end = len(text)
    for _ in range(count):
        position = text.rfind(words, starts[1], end)
        if position < 0:
            return
        number = bisect_right(starts, position) - 1
        yield number
        end = starts[number]
