"""Failures in a text of any length: a training log, a pasted traceback, the kernel's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ._findings import find_in
from ._kind import FailureKind, Family, Finding
from ._rules import PLAIN_ERRORS, RULES, Rule
from ._table import CAUSES

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][A-Z0-9]|[@-Z\\-_=>])")
_RANK = re.compile(r"\[(?:rank|default|Rank )(\d{1,6})\]|^\s{0,3}(\d{1,5}): ")
_PROGRESS = re.compile(r"\d%\||it/s|s/it|\b[Ee]poch\W{1,3}\d|\b[Ll]oss\W{1,3}\d")
_PLAIN = re.compile(
    r"^(?:.{0,60}?[\s|\]:>])?((?:[\w]+\.)*(?:" + "|".join(PLAIN_ERRORS) + r"))(?:: .*|\s*)$", re.MULTILINE
)
_TRACEBACK = "Traceback (most recent call last)"

_TRIED = 40  # places of one rule's words that are looked at from either end of the text
_AROUND = 4000  # characters after the words that a message may take
_LINE = 600  # characters of a line before the words that are looked at
_WRAPPED = 1 << 20  # up to this size a text is searched once more with its line breaks removed
_TRACED = 1 << 16  # characters that a traceback may take
_AFTER = 1 << 18  # characters after a failure in which progress is looked for
_GOES_ON = 30  # lines of progress after a failure that show that the run survived it

# These follow from something else that went wrong, if anything else did.
_CONSEQUENCES = {
    FailureKind.RANK_TIMEOUT,
    FailureKind.PEER_DIED,
    FailureKind.WORKER_GONE,
    FailureKind.NOTEBOOK_DIED,
    FailureKind.STOPPED,
    FailureKind.ABORTED,
    FailureKind.PYTHON_ERROR,
    FailureKind.UNCLEAN_END,
}
_WARNINGS = {Family.NUMBERS}
# Programs often go on without what they could not fetch or build: an error after it is another one.
_MENDED = {FailureKind.NETWORK, FailureKind.COMPILER}
# Stated by the system itself, or by an allocator: these explain what else is there.
_DEFINITE = {
    FailureKind.HOST_KILL,
    FailureKind.SCHEDULER_KILL,
    FailureKind.WORKER_KILLED,
    FailureKind.WORKER_BUS_ERROR,
    FailureKind.SHM_FULL,
}


@dataclass(frozen=True)
class _Hit:
    kind: FailureKind
    start: int
    end: int
    line: str
    around: str

    @property
    def rank(self) -> int | None:
        match = _RANK.search(self.line)
        return None if match is None else int(match[1] or match[2])


def read_log(text: str) -> tuple[Finding, ...]:
    """Everything that is recognised in a text, one finding a kind, the most important first.

    A cause comes before what follows from it, what ended the run before what it survived, memory before the rest.
    """
    clean = _clean(text)
    hits = _hits(clean)
    if not hits and len(clean) <= _WRAPPED:
        # A terminal or a mail program has broken the lines.
        clean = " ".join(clean.split())
        hits = _hits(clean)
    return tuple(_finding(hit, clean) for hit in sorted(hits, key=lambda hit: _order(hit, hits, clean)))


def last_error(text: str) -> str | None:
    """The last line of a text that looks like an error, for a text of which nothing is recognised."""
    clean = _clean(text)
    place = max(clean.rfind(words) for words in ("Error: ", "Exception: "))
    if place < 0:
        return None
    start = max(clean.rfind("\n", 0, place) + 1, place - _LINE)
    end = clean.find("\n", place)
    return clean[start : min(end if end >= 0 else len(clean), place + _LINE)].strip()


def _clean(text: str) -> str:
    """Without colours, with a line for every state of a progress bar, and without zero bytes."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.replace("\r", "\n").replace("\0", "")


def _hits(text: str) -> list[_Hit]:
    """The first place of each kind, or its last if the run survived the first.

    Of two rules on one line, or inside of one message, the first counts.
    """
    found: dict[FailureKind, _Hit] = {}
    taken: list[_Hit] = []
    for rule in RULES:
        hit = _find(rule, text, taken, _places(rule.words, text))
        if hit is None:
            continue
        if CAUSES[hit.kind].family not in _WARNINGS and _survived(hit, text):
            hit = _find(rule, text, taken, _last_places(rule.words, text)) or hit
        taken.append(hit)
        known = found.get(rule.kind)
        if known is None or (_survived(hit, text), hit.start) < (_survived(known, text), known.start):
            found[rule.kind] = hit
    plain = _plain_error(text)
    if plain is not None and (_ends_with(text, plain.start) or not (found or _survived(plain, text))):
        found[plain.kind] = plain
    return list(found.values())


def _find(rule: Rule, text: str, taken: list[_Hit], places: Iterator[int]) -> _Hit | None:
    """What a rule finds at the first of some places at which it holds."""
    for place in places:
        start = max(text.rfind("\n", max(place - _LINE, 0), place) + 1, place - _LINE, 0)
        if any(hit.start <= start < hit.end for hit in taken):
            continue
        end = text.find("\n", place, place + _LINE)
        line = text[start : end if end >= 0 else place + _LINE]
        around = text[start : place + _AROUND]
        length = None if _is_code(line) else _length(rule, around, place - start, len(line))
        if length is not None:
            return _Hit(rule.kind, start, start + max(length, 1), line, around)
    return None


def _places(words: str, text: str) -> Iterator[int]:
    """Where words stand: the first places in the text, then the last ones."""
    place, tried = text.find(words), 0
    while place >= 0 and tried < _TRIED:
        yield place
        tried += 1
        place = text.find(words, place + 1)
    if place >= 0:
        yield from _last_places(words, text)


def _last_places(words: str, text: str) -> Iterator[int]:
    place, tried = text.rfind(words), 0
    while place >= 0 and tried < _TRIED:
        yield place
        tried += 1
        place = text.rfind(words, 0, place)


def _length(rule: Rule, around: str, at: int, line: int) -> int | None:
    """How far a message reaches; None if the form doesn't hold, or begins on another line than the words."""
    if rule.form is None:
        return line
    match = rule.form.search(around)
    holds = match is not None and match.start() <= max(line, at) and match.end() > at
    return max(match.end(), line) if match is not None and holds else None


_CODE = re.compile(r"^\s*(?:[|#>-]*\s*)?(?:\d+\s+)?(?:except|if|elif|raise|assert|return|print|logger|log)\b.*[\"'(:]")


def _is_code(line: str) -> bool:
    """A line of source, as tracebacks quote them, says what could happen and not what did."""
    return _CODE.match(line) is not None


def _plain_error(text: str) -> _Hit | None:
    """The last error of Python's own, if the text holds a traceback."""
    start = text.rfind(_TRACEBACK)
    if start < 0 and "\n" in text.strip():
        return None
    last = None
    for match in _PLAIN.finditer(text, max(start, 0), max(start, 0) + _TRACED):
        last = match
    return None if last is None else _Hit(FailureKind.PYTHON_ERROR, last.start(), last.end(), last[0].strip(), last[0])


def _ends_with(text: str, start: int) -> bool:
    """Whether nothing but a few lines follows."""
    return text.count("\n", start) <= 5  # noqa: PLR2004  a farewell of the shell or of the logger


def _order(hit: _Hit, hits: list[_Hit], text: str) -> tuple[int, int, int, int]:
    """What a person should read first."""
    cause = CAUSES[hit.kind]
    survived = _survived(hit, text)
    consequence = hit.kind in _CONSEQUENCES and any(other.kind not in _CONSEQUENCES for other in hits)
    about = 2 if cause.family in _WARNINGS else 0 if cause.is_memory else 1
    return int(survived or _mended(hit, hits)), int(consequence), about, 0 if hit.kind in _DEFINITE else hit.start


def _mended(hit: _Hit, hits: Sequence[_Hit]) -> bool:
    """Whether something else went wrong after it."""
    others = (_CONSEQUENCES - {FailureKind.PYTHON_ERROR}) | _MENDED
    return hit.kind in _MENDED and any(other.start > hit.start and other.kind not in others for other in hits)


def _survived(hit: _Hit, text: str) -> bool:
    """Whether the run went on for long after it."""
    return any(count >= _GOES_ON for count, _ in enumerate(_PROGRESS.finditer(text, hit.start), 1))


def _finding(hit: _Hit, text: str) -> Finding:
    found = find_in(hit.kind, hit.line, hit.around, None if hit.rank is None else {"rank": hit.rank})
    if _survived(hit, text) and CAUSES[hit.kind].family not in _WARNINGS:
        return replace(found, detail=("The run went on for long after this.", *found.detail))
    return found
