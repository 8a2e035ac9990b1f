"""A line of a log, as it is and without what surrounds it: colors, markdown, HTML, times, line breaks of terminals."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[()][A-Z0-9]|[@-Z\\-_=>])")
_ENTITY = re.compile(r"&(?:gt|lt|amp|quot|apos|nbsp|#\d{1,5}|#[xX][0-9a-fA-F]{1,4});")
_TAG = re.compile(r"</?(?:br|pre|code|p|div|span|li|tt|b|strong|em)\b[^<>\n]{0,80}>", re.IGNORECASE)
_DOCKER = re.compile(r'^\{"log":"(.*?)(?:\\n|\\r)*","stream"')
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_TIME = (
    rf"\d{{4}}[-/]\d\d[-/]\d\d[T ]{_CLOCK}(?:Z|\s?[+-]\d\d:?\d\d)?|{_CLOCK}|[A-Z][a-z]{{2}} {{1,2}}\d{{1,2}} {_CLOCK}"
)
# Quotes, bullets, headings, columns, code fences, line numbers and times at the start of a line.
_PREFIX = re.compile(
    rf"\s*(?:>+|[-*+•]\s|#{{1,6}}\s|[|│┃]|\d{{1,3}}[.)]\s|\d{{1,6}}(?::(?!\d)|\t|\s{{2,}}|\s?[|│])|`+|\[?(?:{_TIME})\]?[\s:|-]*)\s*"
)
_SUFFIX = " \t|│`*\\"
# What a shell prints when a program ends, right behind a progress bar or a prompt.
_ENDS = r"Killed(?:: 9)?|Aborted(?: \(core dumped\))?|KeyboardInterrupt"
_GLUED = re.compile(rf"(?:[\d\])|%█]|(?:it/s|s/it)(?:[^\]]{{0,80}}\] ?)?|[$#] )((?:{_ENDS})\s*)$")
_QUOTE = re.compile(r"^\s*(?:[>|]\s?)+")
_SOURCE_LINE = re.compile(
    r"^\s*(?:[|#>-]*\s*)?(?:\d+\s+)?(?:except|if|elif|raise|assert|return|print|logger|log)\b.*[\"'(:]"
)
_COMMAND = re.compile(r"^\s*(?:[\w.-]+@[\w.-]+:[^$#\n]{0,80}[$#]|\(\w+\) \$|\$) \S")
_TEST_RESULT = re.compile(r"\btest_\w+.*\b(?:PASSED|SKIPPED|XFAIL|ok)\b")
_SERVICE = re.compile(r"systemd\[\d+\]: (?:Listening on|Start(?:ed|ing)|Stopp(?:ed|ing)|Reached target|Finished) ")
_RAISE = re.compile(r"\braise [\w.]+\([\"']")
# Comments and statements in C++, Rust and the like, with a message that may be printed.
_OTHER_SOURCE = re.compile(r"^\s*(?:///? |#\[\w+\()|\b(?:f?puts|f?printf|throw [\w:]+|std::cerr <<)\s*\(?\"")
_PLACEHOLDER = re.compile(r"<(?:id|pid|name|comm|job_?id|step_?id|user|path|size|N)>")
_COMMIT = re.compile(r"^\s*[0-9a-f]{7,12} (?!\d)")
_CHANGES = (
    "Fix(?:ed|es)?|Add(?:ed|s)?|Improve[ds]?|Change[ds]|Remove[ds]|Updated?|Resolved|Prevents?|Avoids?|Deprecated?",
    "Supports?|Handles?",
)
# An item of a changelog or of release notes.
_CHANGE = re.compile(
    r"^\s*(?:[-*+] .*\(#\d{1,7}(?:, #\d{1,7})*\)\s*$"
    rf"|[-*+•‣◦·] (?:\[[^\]]{{1,20}}\] |\w+: )?(?:{'|'.join(_CHANGES)})\b)"
)
_QUESTION = re.compile(r"^\W*[QA]\d{0,3}[:.] ")  # of a list of questions and answers
_NAMED_ERROR = re.compile(r"(?:Error|Exception)(?:: |\s*$)|Traceback \(|: (?:error|fatal):")
_FRAME = re.compile(r'^(.{0,60}?)\s+File "[^"]{1,300}", line \d+')
_NEW_RECORD = re.compile(
    rf'\s*(?:File "|Traceback \(|```|\[?(?:{_TIME})|\[(?:rank|default)?\d+\]|[\w.]+(?:Error|Exception): )'
)

_MAX_CONTEXT = 5000  # characters that follow the start of a line
_MAX_WRAPPED = 12  # lines that a message is wrapped over
_MAX_JOINED_BEFORE = 2  # lines before the one with a rule's words that may be the start of its message
_MIN_WRAPPED = 16  # characters of the first line of a wrapped message
_MIN_CONTINUED = 8  # characters of its further lines except the last
_MAX_DECORATED = 4000  # characters of a line with markdown
_MAX_SOURCE = 600  # characters of a line of source code
_MAX_PREFIXES = 5
_MAX_GLUED = 150  # characters at the end of a line


def clean(text: str) -> str:
    """Remove colors and other escape sequences, and resolve HTML entities."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return _ENTITY.sub(_resolve, text) if "&" in text else text


def _resolve(entity: re.Match[str]) -> str:
    return html.unescape(entity[0]).replace("\n", " ").replace("\r", " ")


@dataclass(frozen=True)
class Form:
    """A form of a line in which a rule is searched.

    Attributes:
        number: The number of the line in its block.
        text: The line in this form, then its context.
        joined_at: Where a wrapped line was joined with the next one; None in other forms.
        joined_lines: How many lines were joined.
    """

    number: int
    text: str
    joined_at: int | None = None
    joined_lines: int = 0

    def fits(self, match: tuple[int, int]) -> bool:
        """Return True unless a match in a joined line is in one of its parts: then the join isn't what it needed."""
        return self.joined_at is None or match[0] < self.joined_at < match[1]

    def line_breaks(self, end: int) -> int:
        """Return how many line breaks the text up to a position has."""
        return self.joined_lines or self.text.count("\n", 0, end)


class LogLine:
    """A line of a block, with the lines around it.

    Args:
        lines: The lines of the block.
        number: Which of them.
    """

    def __init__(self, lines: Sequence[bytes], number: int) -> None:
        self._lines = lines
        self.number = number

    @cached_property
    def line(self) -> str:
        """The line without colors."""
        return _decode(self._lines[self.number])

    @cached_property
    def is_source(self) -> bool:
        """True for code in a traceback, commands, changelogs and the like: they say what could happen."""
        start = self.line[:_MAX_SOURCE]
        if _CHANGE.match(start) or _QUESTION.match(start):
            return True
        if _SOURCE_LINE.match(start) or _SOURCE_LINE.match(_undecorate(start)):
            return True
        if any(pattern.search(start) for pattern in (_TEST_RESULT, _SERVICE, _RAISE, _PLACEHOLDER, _OTHER_SOURCE)):
            return True
        if _is_command(start):
            return True
        if _COMMIT.match(start) and any(_COMMIT.match(line) for line in self._neighbors):
            return True
        frame = _FRAME.match(_decode(self._lines[max(self.number - 1, 0)][:_MAX_SOURCE]))
        return frame is not None and start.startswith(frame[1] + "    ")

    @property
    def _neighbors(self) -> tuple[str, ...]:
        return tuple(
            _decode(self._lines[number][:_MAX_SOURCE])
            for number in (self.number - 1, self.number + 1)
            if 0 <= number < len(self._lines)
        )

    def forms(self, words: str, *, with_joined: bool) -> Iterator[Form]:
        """Yield forms of the line that contain words.

        These are the line as it is, without markdown, HTML and times, and if requested joined with lines around it.
        """
        if words in self.line:
            yield self._plain
        if self._bare_line != self.line and words in self._bare_line:
            yield self._bare
        if with_joined:
            yield from (form for form in self._joined if words in form.text)

    @cached_property
    def _bare_line(self) -> str:
        return _undecorate(self.line)

    @cached_property
    def _plain(self) -> Form:
        return Form(self.number, "\n".join(self._following(self.number)))

    @cached_property
    def _bare(self) -> Form:
        others = self._following(self.number)[1:]
        if _QUOTE.match(self.line):
            others = [_undecorate(line) for line in others]
        return Form(self.number, "\n".join([self._bare_line, *others]))

    @cached_property
    def _joined(self) -> tuple[Form, ...]:
        """The line joined with those that may continue it, or that it may continue."""
        numbers = range(self.number, max(self.number - _MAX_JOINED_BEFORE, 1) - 1, -1)
        return tuple(form for number in numbers for form in _join(self._following(number), number))

    def _following(self, number: int) -> list[str]:
        """Return a line and those that follow, without colors."""
        last, size = number, 0
        while last < len(self._lines) and size < _MAX_CONTEXT:
            size += len(self._lines[last]) + 1
            last += 1
        return [_decode(line) for line in self._lines[number:last]]


def _is_command(line: str) -> bool:
    """Return True for what somebody typed at a prompt, without the end of the program behind it."""
    return _COMMAND.match(line) is not None and not (_GLUED.search(line) or _NAMED_ERROR.search(line))


def _decode(line: bytes) -> str:
    return clean(line.decode("utf-8", "replace"))


def _undecorate(line: str) -> str:
    """Return what a line says without markdown, HTML, times, and a progress bar in front of a shell's message."""
    if len(line) > _MAX_DECORATED:
        return line
    if line.startswith('{"log"') and (docker := _DOCKER.match(line)):
        line = docker[1]
    if "<" in line:
        line = _TAG.sub(" ", line)
    line = line.replace("**", "")
    start = 0
    for _ in range(_MAX_PREFIXES):
        prefix = _PREFIX.match(line, start)
        if prefix is None:
            break
        start = prefix.end()
    line = line[start:].rstrip(_SUFFIX).lstrip()
    glued = _GLUED.search(line[-_MAX_GLUED:])
    return glued[1] if glued else line


def _join(lines: Sequence[str], number: int) -> Iterator[Form]:
    """Yield a line joined with those that continue it: broken inside a word or at a space, indented or not."""
    parts: list[str] = []
    for line in lines[1:_MAX_WRAPPED]:
        if not line.strip() or _NEW_RECORD.match(line):
            break
        parts.append(_QUOTE.sub("", line))
        if len(line) < _MIN_CONTINUED:
            break
    first = _undecorate(lines[0])
    if not parts or len(first) < _MIN_WRAPPED:
        return
    stripped = [part.strip(" \t`*") for part in parts]
    for text in dict.fromkeys((first + "".join(parts), first + "".join(stripped), " ".join([first, *stripped]))):
        yield Form(number, text, len(first), len(parts))
