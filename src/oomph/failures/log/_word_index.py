"""Index of searched words: which of them may be in a line, at a cost that hardly depends on how many are searched.

Lines are compared by their shape: its letters in lower case, without digits. A log of a million lines has few shapes.
A shape is looked up word by word, and most words of a log belong to nothing that is searched.
"""

from __future__ import annotations

import string
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate

_LOWER, _UPPER = string.ascii_lowercase.encode(), string.ascii_uppercase.encode()
# Letters become lower case; digits, and the blocks of progress bars, vanish; anything else separates words.
_SHAPES = bytes(
    code if code in _LOWER or code == ord("\n") else code + 32 if code in _UPPER else ord(" ") for code in range(256)
)
_VANISHING = string.digits.encode() + bytes(range(128, 256))
# Words of healthy logs: a line with one of these may be anything.
_COMMON = frozenset(
    b"the with out all not for are and has been from error memory failed file files device size time code status "
    b"batch model loss step epoch cuda gpu gpus torch data while when".split()
)
_STEM = 4  # letters
_MIN_RARE = 3  # letters of a word that isn't common

_MAX_WORDS = 100_000  # words of a log that are remembered
_MIN_SPREAD = 6  # letters of words that are searched across lines: fewer occur by chance
_MAX_SPREAD = 10  # occurrences of the same words across lines


def to_shapes(text: bytes) -> bytes:
    """Return the shapes of all lines of a text."""
    return text.translate(_SHAPES, _VANISHING)


@dataclass(frozen=True)
class _Anchors:
    """One word of each of the searched words, with their numbers.

    Attributes:
        complete: Anchors that are words of the line.
        partial: Anchors that may be parts of words of the line.
        stems: A few letters, and all partial anchors that contain them.
    """

    complete: dict[bytes, list[int]] = field(default_factory=dict)
    partial: dict[bytes, list[int]] = field(default_factory=dict)
    stems: dict[bytes, list[bytes]] = field(default_factory=dict)


@cache
def _find_anchors(searched: tuple[str, ...]) -> _Anchors:
    anchors = _Anchors()
    for number, words in enumerate(searched):
        anchor, is_complete = _choose_anchor(to_shapes(words.encode()))
        if anchor:
            (anchors.complete if is_complete else anchors.partial).setdefault(anchor, []).append(number)
    by_stem: dict[bytes, set[bytes]] = {}
    for anchor in anchors.partial:
        for start in range(max(len(anchor) - _STEM, 0) + 1):
            by_stem.setdefault(anchor[start : start + _STEM], set()).add(anchor)
    left = set(anchors.partial)
    while left:
        stem = max(sorted(by_stem), key=lambda stem: len(by_stem[stem] & left))
        anchors.stems[stem] = sorted(by_stem[stem] & left)
        left -= by_stem[stem]
    return anchors


def _choose_anchor(shape: bytes) -> tuple[bytes, bool]:
    """Return the best word to search for first, and True if it can't be part of a longer word.

    Complete words are found fastest; rare words and long ones are in few lines.
    """
    complete = _complete_words(shape)

    def quality(part: bytes) -> tuple[bool, bool, int]:
        return part not in _COMMON and len(part) >= _MIN_RARE, part in complete and len(part) >= _STEM, len(part)

    anchor = max(shape.split(), key=quality, default=b"")
    return anchor, anchor in complete


def _complete_words(shape: bytes) -> set[bytes]:
    """Return the words that can't be part of longer ones."""
    words = shape.split()
    return set(words[shape[:1] != b" " : len(words) - (shape[-1:] != b" ")])


class WordIndex:
    """Words that are searched in lines; each is known by its number in `searched`."""

    def __init__(self, searched: Sequence[str]) -> None:
        shapes = [to_shapes(words.encode()) for words in searched]
        self._letters = [shape.replace(b" ", b"") for shape in shapes]
        self._complete = [_complete_words(shape) for shape in shapes]
        self.without_letters = [number for number, letters in enumerate(self._letters) if not letters]
        self._anchors = _find_anchors(tuple(searched))
        # Words of the log: those without anchors, those with, and the numbers that these stand for.
        self._dull: set[bytes] = set()
        self._anchored: set[bytes] = set()
        self._numbers: dict[bytes, list[int]] = {}

    def find(self, shape: bytes) -> list[int]:
        """Return the numbers of words whose letters a shape contains, whatever is between them."""
        words = set(shape.split())
        self._learn(words)
        letters = shape.replace(b" ", b"")
        return [number for number in self._numbers_of(words) if self._letters[number] in letters]

    def find_all(self, shapes: Iterable[bytes]) -> list[int]:
        """Return the numbers of words that at least one of many shapes may contain."""
        words = set(b" ".join(shapes).split())
        self._learn(words)
        return [number for number in self._numbers_of(words) if self._complete[number] <= words]

    def find_across(self, shapes: Iterable[bytes]) -> Iterator[tuple[int, int]]:
        """Yield lines, and the numbers of words that begin in the line and end in a later one."""
        letters = [shape.replace(b" ", b"") for shape in shapes]
        text, starts = b"".join(letters), list(accumulate(map(len, letters), initial=0))
        for number, words in enumerate(self._letters):
            if len(words) < _MIN_SPREAD:
                continue
            position, count = text.find(words), 0
            while position >= 0 and count < _MAX_SPREAD:
                line = bisect_right(starts, position) - 1
                if position + len(words) > starts[line + 1]:
                    yield line, number
                    count += 1
                position = text.find(words, position + 1)

    def _learn(self, words: set[bytes]) -> None:
        """Sort words that were not seen before into dull ones and those with anchors."""
        if len(self._dull) + len(self._anchored) > _MAX_WORDS:
            # Logs with random names have endless words.
            self._dull.clear()
            self._anchored.clear()
            self._numbers.clear()
        words = words - self._dull - self._anchored
        if not words:
            return
        anchors = self._anchors
        numbers = {word: list(anchors.complete[word]) for word in words & anchors.complete.keys()}
        joined = b"\n" + b"\n".join(words) + b"\n"
        for stem, partial in anchors.stems.items():
            for word in _words_with(stem, joined):
                for anchor in partial:
                    if anchor in word:
                        numbers.setdefault(word, []).extend(anchors.partial[anchor])
        self._numbers.update(numbers)
        self._anchored.update(numbers)
        self._dull |= words - numbers.keys()

    def _numbers_of(self, words: set[bytes]) -> list[int]:
        return sorted({number for word in words & self._anchored for number in self._numbers[word]})


def _words_with(stem: bytes, joined: bytes) -> Iterator[bytes]:
    position = joined.find(stem)
    while position >= 0:
        end = joined.find(b"\n", position)
        yield joined[joined.rfind(b"\n", 0, position) + 1 : end]
        position = joined.find(stem, end)
