"""Recognition of failures in a text of any length: a training log, a traceback, the kernel log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ._causes import CAUSES
from ._findings import finding_in_text
from ._kinds import FailureKind, Family, Finding
from ._rules import PLAIN_ERRORS, RULES, Rule

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[()][A-Z0-9]|[@-Z\\-_=>])")
_RANK = re.compile(r"\[(?:rank|default|Rank )(\d{1,6})\]|^\s{0,3}(\d{1,5}): ")
_PROGRESS = re.compile(r"\d%\||it/s|s/it|\b[Ee]poch\W{1,3}\d|\b[Ll]oss\W{1,3}\d")
_PLAIN_ERROR = re.compile(
    r"^(?:.{0,60}?[\s|\]:>])?((?:[\w]+\.)*(?:" + "|".join(PLAIN_ERRORS) + r"))(?:: .*|\s*)$", re.MULTILINE
)
_SOURCE_LINE = re.compile(
    r"^\s*(?:[|#>-]*\s*)?(?:\d+\s+)?(?:except|if|elif|raise|assert|return|print|logger|log)\b.*[\"'(:]"
)
_TRACEBACK = "Traceback (most recent call last)"

_MAX_TRIED = 40  # occurrences of a rule's words that are checked from either end of the text
_MAX_MESSAGE = 4000  # characters of a message after its words
_MAX_LINE = 600  # characters of a line before and after the words
_MAX_UNWRAPPED = 1 << 20  # up to this size, a text is searched again with its line breaks removed
_MAX_TRACEBACK = 1 << 16  # characters
_MAX_TAIL_LINES = 5  # lines that a shell or logger may print after the final error
_MIN_PROGRESS = 30  # lines of progress after a failure that show that the run survived it

# Consequences of another failure, if the text contains one.
_CONSEQUENCES = {
    FailureKind.RANK_TIMEOUT,
    FailureKind.PEER_DIED,
    FailureKind.WORKER_EXITED,
    FailureKind.NOTEBOOK_DIED,
    FailureKind.STOPPED,
    FailureKind.ABORTED,
    FailureKind.PYTHON_ERROR,
    FailureKind.UNEXPECTED_END,
}
_WARNINGS = {Family.NUMERICS}
# Programs often continue without what they could not download or build, so a later error is another one.
_OFTEN_HARMLESS = {FailureKind.NETWORK, FailureKind.COMPILER}
# Reported by the system or an allocator: these explain the other failures in the text.
_DEFINITE = {
    FailureKind.OOM_KILL,
    FailureKind.SCHEDULER_KILL,
    FailureKind.WORKER_KILLED,
    FailureKind.WORKER_BUS_ERROR,
    FailureKind.SHM_FULL,
}


@dataclass(frozen=True)
class _Hit:
    """An occurrence of a failure in the text."""

    kind: FailureKind
    start: int
    end: int
    line: str
    context: str

    @property
    def rank(self) -> int | None:
        match = _RANK.search(self.line)
        return None if match is None else int(match[1] or match[2])


def read_log(text: str) -> tuple[Finding, ...]:
    """Return the failures in a text, one per kind, most important first.

    Causes come before their consequences, failures that ended the run before those it survived, and memory before
    other failures.
    """
    clean = _clean(text)
    hits = _find_hits(clean)
    if not hits and len(clean) <= _MAX_UNWRAPPED:
        # A terminal or mail program may have wrapped the lines.
        clean = " ".join(clean.split())
        hits = _find_hits(clean)
    return tuple(_finding(hit, clean) for hit in sorted(hits, key=lambda hit: _priority(hit, hits, clean)))


def last_error(text: str) -> str | None:
    """Return the last line of a text that looks like an error, for texts without a recognized failure."""
    clean = _clean(text)
    position = max(clean.rfind(words) for words in ("Error: ", "Exception: "))
    if position < 0:
        return None
    start = max(clean.rfind("\n", 0, position) + 1, position - _MAX_LINE)
    end = clean.find("\n", position)
    return clean[start : min(end if end >= 0 else len(clean), position + _MAX_LINE)].strip()


def _clean(text: str) -> str:
    """Remove colors and zero bytes, and put every state of a progress bar on its own line."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.replace("\r", "\n").replace("\0", "")


def _find_hits(text: str) -> list[_Hit]:
    """Return the first occurrence of each kind, or the last one if the run survived the first.

    If two rules match the same line or message, the first rule counts.
    """
    hits: dict[FailureKind, _Hit] = {}
    matched: list[_Hit] = []
    for rule in RULES:
        hit = _find_hit(rule, text, matched, _positions(rule.words, text))
        if hit is None:
            continue
        if CAUSES[hit.kind].family not in _WARNINGS and _survived(hit, text):
            hit = _find_hit(rule, text, matched, _last_positions(rule.words, text)) or hit
        matched.append(hit)
        known = hits.get(rule.kind)
        if known is None or (_survived(hit, text), hit.start) < (_survived(known, text), known.start):
            hits[rule.kind] = hit
    plain = _find_plain_error(text)
    if plain is not None and (_is_at_end(text, plain.start) or not (hits or _survived(plain, text))):
        hits[plain.kind] = plain
    return list(hits.values())


def _find_hit(rule: Rule, text: str, matched: list[_Hit], positions: Iterator[int]) -> _Hit | None:
    """Return the hit at the first of the positions where the rule matches."""
    for position in positions:
        start = max(text.rfind("\n", max(position - _MAX_LINE, 0), position) + 1, position - _MAX_LINE, 0)
        if any(hit.start <= start < hit.end for hit in matched):
            continue
        end = text.find("\n", position, position + _MAX_LINE)
        line = text[start : end if end >= 0 else position + _MAX_LINE]
        context = text[start : position + _MAX_MESSAGE]
        # A traceback quotes lines of source code, which say what could happen and not what happened.
        is_source = _SOURCE_LINE.match(line) is not None
        length = None if is_source else _match_length(rule, context, position - start, len(line))
        if length is not None:
            return _Hit(rule.kind, start, start + max(length, 1), line, context)
    return None


def _positions(words: str, text: str) -> Iterator[int]:
    """Yield positions of the words: the first ones in the text, then the last ones."""
    position, tried = text.find(words), 0
    while position >= 0 and tried < _MAX_TRIED:
        yield position
        tried += 1
        position = text.find(words, position + 1)
    if position >= 0:
        yield from _last_positions(words, text)


def _last_positions(words: str, text: str) -> Iterator[int]:
    position, tried = text.rfind(words), 0
    while position >= 0 and tried < _MAX_TRIED:
        yield position
        tried += 1
        position = text.rfind(words, 0, position)


def _match_length(rule: Rule, context: str, position: int, line_length: int) -> int | None:
    """Return the length of the message, or None if the pattern doesn't match or starts on another line."""
    if rule.pattern is None:
        return line_length
    match = rule.pattern.search(context)
    if match is None or match.start() > max(line_length, position) or match.end() <= position:
        return None
    return max(match.end(), line_length)


def _find_plain_error(text: str) -> _Hit | None:
    """Return the last built-in Python error, if the text contains a traceback or is a single line."""
    start = text.rfind(_TRACEBACK)
    if start < 0 and "\n" in text.strip():
        return None
    last = None
    for match in _PLAIN_ERROR.finditer(text, max(start, 0), max(start, 0) + _MAX_TRACEBACK):
        last = match
    return None if last is None else _Hit(FailureKind.PYTHON_ERROR, last.start(), last.end(), last[0].strip(), last[0])


def _is_at_end(text: str, start: int) -> bool:
    return text.count("\n", start) <= _MAX_TAIL_LINES


def _priority(hit: _Hit, hits: list[_Hit], text: str) -> tuple[int, int, int, int]:
    """Return the sort key of a hit; the smallest is the most important."""
    cause = CAUSES[hit.kind]
    is_past = _survived(hit, text) or _is_harmless(hit, hits)
    is_consequence = hit.kind in _CONSEQUENCES and any(other.kind not in _CONSEQUENCES for other in hits)
    topic = 2 if cause.family in _WARNINGS else 0 if cause.is_memory else 1
    return int(is_past), int(is_consequence), topic, 0 if hit.kind in _DEFINITE else hit.start


def _is_harmless(hit: _Hit, hits: Sequence[_Hit]) -> bool:
    """Return True if the program continued after the hit and another failure followed."""
    ignored = (_CONSEQUENCES - {FailureKind.PYTHON_ERROR}) | _OFTEN_HARMLESS
    return hit.kind in _OFTEN_HARMLESS and any(other.start > hit.start and other.kind not in ignored for other in hits)


def _survived(hit: _Hit, text: str) -> bool:
    """Return True if the run made progress for long after the hit."""
    return any(count >= _MIN_PROGRESS for count, _ in enumerate(_PROGRESS.finditer(text, hit.start), 1))


def _finding(hit: _Hit, text: str) -> Finding:
    finding = finding_in_text(hit.kind, hit.line, hit.context, None if hit.rank is None else {"rank": hit.rank})
    if _survived(hit, text) and CAUSES[hit.kind].family not in _WARNINGS:
        return replace(finding, details=("The run continued for long after this.", *finding.details))
    return finding
