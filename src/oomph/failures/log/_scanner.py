"""Scanner of logs of any length: it reads block by block, with bounded memory.

In a block, few lines have words that a rule or an error contains (`WordIndex`). Only to these the rules are applied.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ...units import KIB, MIB
from .._kinds import FailureKind, Finding
from ..rules import LAST_RESORT_RULES, RULES
from ._block import TAIL_BYTES, Block, split_lines
from ._error_trail import ERROR_WORDS, FINISH_WORDS, ErrorTrail
from ._hits import Hit, HitBook, LaterLines, match_rule, rank_hits
from ._lines import LogLine, clean
from ._mentions import mentioning_lines
from ._word_index import WordIndex

BLOCK_BYTES = MIB  # a text of at most one block is also searched for messages that are wrapped over lines
_PIECE_END = KIB  # characters at the end of a piece, which are read with the next one
# Lines of one shape in a block that a rule is tried on, from either end: at first, and after many that didn't match.
_MAX_TRIED, _MAX_FAILED, _MAX_TRIED_AGAIN = 20, 1000, 2
_MAX_HEAD, _MAX_BEFORE, _MAX_LINES_BEFORE = 4000, 8000, 200  # of the surroundings of a failure
_USUAL_LINE = 600  # characters; a longer one counts as several
_MAX_INEXACT = 50  # lines with the letters of a rule's words but not the words, from either end

_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\b\a\x1b")) + b"\x7f"
_MAX_CONTROL = 0.05  # the share of control characters in a text

# The words of errors are searched in any case, so that there are no exact ones.
_LINE_WORDS = (*ERROR_WORDS, *FINISH_WORDS)
_WORDS = (*(rule.words.encode() for rule in RULES), *(b"" for _ in _LINE_WORDS))


@dataclass(frozen=True)
class LogReading:
    """What a log contains.

    Attributes:
        findings: The failures, one per kind, most important first.
        last_error: The last line that looks like an error, recognized or not.
        unknown_end: The error of a traceback after all recognized failures.
        is_text: False for an empty text and for binary data.
        has_finished: True if a line says that the run has finished.
    """

    findings: tuple[Finding, ...]
    last_error: str | None
    unknown_end: str | None
    is_text: bool
    has_finished: bool = False


class LogScanner:
    """Recognizes the failures in a log that arrives in chunks: call `feed` for each, then `finish`.

    The result doesn't depend on the sizes of the chunks.
    """

    def __init__(self, block_bytes: int = BLOCK_BYTES) -> None:
        self._block_bytes = block_bytes
        self._buffer = bytearray()
        self._index = WordIndex([*(rule.words for rule in RULES), *_LINE_WORDS])
        self._hits = HitBook()
        self._head = b""
        self._errors = ErrorTrail()
        self._previous = b""  # the last line of the block before
        self._line_number = 0  # of this line
        self._progress = 0  # lines of progress in the blocks before, from the first failure on
        self._text_lines = 0  # lines with text; not counted any more after the first block with two
        self._last_hit = -1  # the line where the last recognized message ends, also one that was recognized before
        self._failed_tries: Counter[int] = Counter()
        self._bytes = self._control_bytes = 0

    def feed(self, data: bytes) -> None:
        """Read a chunk of UTF-8; invalid bytes are allowed."""
        if len(self._head) < _MAX_HEAD:
            self._head += data[: _MAX_HEAD - len(self._head)]
        self._buffer += data
        while len(self._buffer) >= self._block_bytes:
            del self._buffer[: self._read_block(bytes(self._buffer[: self._block_bytes]))]

    def finish(self) -> LogReading:
        """Read the rest and return what the log contains."""
        is_whole = self._line_number == 0
        lines = split_lines(bytes(self._buffer))
        self._count_bytes(bytes(self._buffer))
        self._buffer.clear()
        self._scan(Block([self._previous, *lines], [], is_cut=False), is_whole=is_whole)
        later = LaterLines(self._progress, self._errors.finished_line)
        hits = self._hits.choose(later)
        # Of a failed rank, the launcher prints many lines after its error.
        has_hits = any(hit.kind is not FailureKind.PEER_DIED for hit in hits)
        plain = self._errors.plain_error(
            self._line_number, later, is_single_line=self._text_lines == 1, has_hits=has_hits
        )
        if plain and any(hit.start[0] <= plain.start[0] <= hit.end[0] for hit in hits):
            plain = None  # a rule knows it better
        findings = rank_hits([*hits, plain] if plain else hits, later)
        is_text = self._text_lines > 0 and self._control_bytes <= _MAX_CONTROL * self._bytes
        if not is_text:  # a few bytes that look like Ctrl-C are no message
            findings = tuple(finding for finding in findings if finding.cause.is_memory)
        unknown_end = None if plain else self._errors.unknown_end(self._last_hit)
        has_finished = self._errors.finished_line >= 0
        return LogReading(findings, self._errors.last_error, unknown_end, is_text, has_finished)

    def _read_block(self, raw: bytes) -> int:
        """Scan a block and return how many of its bytes need not be read again."""
        limit = len(raw) - TAIL_BYTES
        end = max(raw.rfind(b"\n", 0, limit), raw.rfind(b"\r", 0, limit)) + 1
        if raw[end - 1 : end + 1] == b"\r\n":
            end += 1
        if end == 0:  # a line that is longer than the block
            block = Block([self._previous, *split_lines(raw)], [], is_cut=True)
            end = limit
        else:
            lines = split_lines(raw[:end])[:-1]  # without the empty rest behind the last line break
            block = Block([self._previous, *lines], split_lines(raw[end:]), is_cut=False)
        self._count_bytes(raw[:end])
        self._scan(block, is_whole=False)
        return end

    def _count_bytes(self, raw: bytes) -> None:
        self._bytes += len(raw)
        self._control_bytes += len(raw) - len(raw.translate(None, _CONTROL))

    def _scan(self, block: Block, *, is_whole: bool) -> None:
        if self._text_lines <= 1:
            self._text_lines += sum(1 for line in block.lines[1 : len(block.shapes)] if line.strip())
        line = LogLine(block.lines, 0)
        places = self._places(block, is_whole=is_whole)
        mentions = mentioning_lines(_texts(block)) if is_whole and places else frozenset()
        for number, searched in places:
            if number != line.number:
                line = LogLine(block.lines, number)
            if searched < len(RULES):
                is_match = number not in mentions and self._try_rule(searched, line, block, is_whole=is_whole)
            else:
                progress = partial(self._progress_before, block, number)
                is_match = self._errors.read(self._line_number + number, line.line, progress)
            if not is_match:
                self._failed_tries[searched] += 1 + len(line.line) // _USUAL_LINE
        if self._hits.need_progress(self._progress) or self._errors.need_progress(self._progress):
            self._progress += block.progress[-1]
        self._previous = block.lines[len(block.shapes) - 1]
        self._line_number += len(block.shapes) - 1

    def _surroundings(self, block: Block, line: LogLine) -> str:
        """Return the head of the log, and the lines before a line."""
        before = b"\n".join(block.lines[max(line.number - _MAX_LINES_BEFORE, 0) : line.number])[-_MAX_BEFORE:]
        return clean((self._head + b"\n" + before).decode("utf-8", "replace"))

    def _progress_before(self, block: Block, number: int) -> int:
        return self._progress + block.progress[number]

    def _places(self, block: Block, *, is_whole: bool) -> list[tuple[int, int]]:
        """Return the lines to look at, in their order, each with the number of the words that it may contain."""
        by_shape = block.is_uniform or is_whole
        places = set(self._places_by_shape(block, is_whole=is_whole) if by_shape else self._places_by_words(block))
        for searched in self._index.without_letters:
            if _WORDS[searched].isascii() or not block.is_ascii:
                places.update((number, searched) for number in block.find(_WORDS[searched], _MAX_TRIED))
        if is_whole:
            across = self._index.find_across(block.cleaned[shape] for shape in block.shapes[1:])
            places.update((number + 1, searched) for number, searched in across)
        return sorted(places)

    def _places_by_shape(self, block: Block, *, is_whole: bool) -> Iterator[tuple[int, int]]:
        """Yield lines of every shape."""
        found = {shape: numbers for shape, cleaned in block.cleaned.items() if (numbers := self._index.find(cleaned))}
        lines_by_shape: dict[bytes, list[int]] = defaultdict(list)
        for number, shape in enumerate(block.shapes[1:], 1):
            if shape in found:
                lines_by_shape[shape].append(number)
        inexact: dict[int, list[int]] = defaultdict(list)
        for shape, lines in lines_by_shape.items():
            for searched in found[shape]:
                exact = block.lines_with(_WORDS[searched], lines, self._max_tried(searched))
                yield from ((number, searched) for number in exact)
                if not exact:
                    inexact[searched] += lines
        if is_whole:  # in a post, markdown may be between the words
            for searched, lines in inexact.items():
                ordered = sorted(lines)
                yield from ((number, searched) for number in ordered[:_MAX_INEXACT] + ordered[-_MAX_INEXACT:])

    def _places_by_words(self, block: Block) -> Iterator[tuple[int, int]]:
        """Yield lines of a block in which most lines have their own shape."""
        for searched in self._index.find_all(block.cleaned.values()):
            find = block.find if _WORDS[searched] else block.find_in_shapes
            words = _WORDS[searched] or _LINE_WORDS[searched - len(RULES)].lower().encode()
            yield from ((number, searched) for number in find(words, self._max_tried(searched)))

    def _max_tried(self, searched: int) -> int:
        return _MAX_TRIED if self._failed_tries[searched] < _MAX_FAILED else _MAX_TRIED_AGAIN

    def _try_rule(self, number: int, line: LogLine, block: Block, *, is_whole: bool) -> bool:
        """Add a hit if the rule with this number matches one of the line's forms."""
        if line.is_source:
            return False
        # General wordings would match across lines that don't belong together.
        with_joined = is_whole and RULES[number] not in LAST_RESORT_RULES
        for form in line.forms(RULES[number].words, with_joined=with_joined):
            for match in match_rule(RULES[number], form.text, self._max_tried(number)):
                start = (self._line_number + form.number, match.start)
                if form.fits(match.core) and not self._hits.is_covered(number, start):
                    if block.is_incomplete(form.number) and match.end > len(line.line) - _PIECE_END:
                        return True  # the next piece contains it with its context
                    end = (start[0] + form.line_breaks(match.end), match.end)
                    self._last_hit = max(self._last_hit, end[0])
                    progress = self._progress_before(block, form.number)
                    self._hits.add(
                        number,
                        Hit(
                            RULES[number].kind,
                            start,
                            end,
                            match.line,
                            match.context,
                            progress,
                            self._surroundings(block, line),
                        ),
                    )
                    return True
        return False


def _texts(block: Block) -> list[str]:
    return [clean(line.decode("utf-8", "replace")) for line in block.lines]
