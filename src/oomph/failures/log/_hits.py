"""Hits of rules in a log, which of them count, and which is the most important."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .._findings import finding_in_text
from .._kinds import FailureKind, Family, Finding
from ..causes import CAUSES
from ..rules import Rule

Place = tuple[int, int]  # a line's number and a column

_RANK = re.compile(r"\[(?:rank|default|Rank )(\d{1,6})\]|^\s{0,3}(\d{1,5}): ")
_MAX_MESSAGE = 4000  # characters of a message after its words
_MAX_LINE = 600  # characters of a line before and after the words
_MIN_PROGRESS = 30  # lines of progress after a failure that show that the run survived it

# Consequences of another failure, if the text contains one.
_CONSEQUENCES = {
    FailureKind.RANK_TIMEOUT,
    FailureKind.PEER_DIED,
    FailureKind.WORKER_EXITED,
    FailureKind.NOTEBOOK_DIED,
    FailureKind.WORKER_TERMINATED,
    FailureKind.SPAWN_FAILED,
    FailureKind.STOPPED,
    FailureKind.ABORTED,
    FailureKind.PYTHON_ERROR,
    FailureKind.UNEXPECTED_END,
}
_WARNINGS = {Family.NUMERICS}
# A program that fails may kill itself with all its processes: the kill says nothing about memory then.
_BARE_KILLS = {"Killed", "Killed: 9"}
_UNCAUGHT = {FailureKind.PYTHON_ERROR, FailureKind.SHAPE, FailureKind.INDEX, FailureKind.DEVICE_OR_DTYPE}
# Programs often continue without what they could not download or build, so a later error is another one.
_OFTEN_HARMLESS = {FailureKind.NETWORK, FailureKind.COMPILER}
# Reported by the system or an allocator: these explain the other failures in the text.
_DEFINITE = {
    FailureKind.OOM_KILL,
    FailureKind.SCHEDULER_KILL,
    FailureKind.WORKER_KILLED,
    FailureKind.WORKER_BUS_ERROR,
    FailureKind.SHM_FULL,
    FailureKind.GPU_LOST,
}


@dataclass(frozen=True)
class LaterLines:
    """What the lines of a log show about failures before them.

    Attributes:
        progress: The lines of progress in the log.
        finished: The number of the last line that says that the run has finished; -1 if none does.
    """

    progress: int
    finished: int = -1


@dataclass(frozen=True)
class Match:
    """A rule's match in a text: the message from `start` to `end`, its line and its context.

    The `core` is what the rule's pattern or words match.
    """

    start: int
    end: int
    core: tuple[int, int]
    line: str
    context: str


@dataclass(frozen=True)
class Hit:
    """An occurrence of a failure in a log; `progress` counts the lines of progress before it."""

    kind: FailureKind
    start: Place
    end: Place
    line: str
    context: str
    progress: int
    surroundings: str = ""

    @property
    def rank(self) -> int | None:
        match = _RANK.search(self.line)
        return None if match is None else int(match[1] or match[2])


def match_rule(rule: Rule, text: str, max_tried: int) -> Iterator[Match]:
    """Yield the matches of a rule whose words are in the first line of a text.

    In a long line, only some occurrences of the words are tried from either end.
    """
    break_at = text.find("\n")
    line_end = break_at if break_at >= 0 else len(text)
    for position in _positions(rule.words, text[:line_end], max_tried):
        start = max(position - _MAX_LINE, 0)
        line = text[start : min(line_end, position + _MAX_LINE)]
        context = text[start : position + _MAX_MESSAGE]
        core = _match_core(rule, context, position - start, len(line))
        if core is not None:
            end = start + max(len(line), core[1] if rule.pattern else 0, 1)
            yield Match(start, end, (start + core[0], start + core[1]), line, context)


def _positions(words: str, line: str, max_tried: int) -> Iterator[int]:
    """Yield the first positions of words in a line, then the last ones; of a short line, only the first."""
    position, tried = line.find(words), 0
    while position >= 0 and tried < max_tried:
        yield position
        tried += 1
        position = -1 if len(line) <= _MAX_LINE else line.find(words, position + 1)
    last, tried = line.rfind(words, position) if position >= 0 else -1, 0
    while last >= 0 and tried < max_tried:
        yield last
        tried += 1
        last = line.rfind(words, position, last)


def _match_core(rule: Rule, context: str, position: int, line_length: int) -> tuple[int, int] | None:
    """Return where the rule matches, or None if the pattern doesn't match or starts on another line."""
    if rule.pattern is None:
        return position, position + len(rule.words)
    match = rule.pattern.search(context)
    if match is None or match.start() > max(line_length, position) or match.end() <= position:
        return None
    return match.span()


class HitBook:
    """The first and the last hit of each rule.

    Of rules that match the same line or message, the first one counts.
    """

    def __init__(self) -> None:
        self._first: dict[int, Hit] = {}
        self._last: dict[int, Hit] = {}
        self._recent: list[tuple[int, Hit]] = []  # hits whose message may reach into the lines that follow

    def add(self, rule: int, hit: Hit) -> None:
        """Add a hit of a rule, which is given by its number."""
        self._first.setdefault(rule, hit)
        self._last[rule] = hit
        self._recent = [(number, other) for number, other in self._recent if other.end > (hit.start[0], 0)]
        self._recent.append((rule, hit))

    def is_covered(self, rule: int, place: Place) -> bool:
        """Return True if a place belongs to the message of an earlier rule."""
        return any(number <= rule and hit.start <= place < hit.end for number, hit in self._recent)

    def need_progress(self, progress: int) -> bool:
        """Return True as long as progress decides whether the run survived a hit."""
        return any(not survived(hit, LaterLines(progress)) for hit in self._last.values())

    def choose(self, later: LaterLines) -> list[Hit]:
        """Return one hit per kind: the first, or the last one if the run survived the first."""
        hits: dict[FailureKind, Hit] = {}
        for rule in sorted(self._first):
            hit = self._first[rule]
            if CAUSES[hit.kind].family not in _WARNINGS and survived(hit, later):
                hit = self._last[rule]
            known = hits.get(hit.kind)
            if known is None or (survived(hit, later), hit.start) < (survived(known, later), known.start):
                hits[hit.kind] = hit
        return list(hits.values())


def survived(hit: Hit, later: LaterLines) -> bool:
    """Return True if the run made progress for long after the hit, or finished."""
    return later.progress - hit.progress >= _MIN_PROGRESS or hit.start[0] < later.finished


def rank_hits(hits: Sequence[Hit], later: LaterLines) -> tuple[Finding, ...]:
    """Return the findings of hits, most important first.

    Causes come before their consequences, failures that ended the run before those it survived, and memory before
    other failures.
    """
    ranked = sorted(hits, key=lambda hit: _priority(hit, hits, later))
    unique: dict[FailureKind, Finding] = {}
    for hit in ranked:
        finding = _finding(hit, later)
        unique.setdefault(finding.kind, finding)  # the surroundings may refine two kinds to one
    return tuple(unique.values())


def _priority(hit: Hit, hits: Sequence[Hit], later: LaterLines) -> tuple[int, int, int, Place]:
    """Return the sort key of a hit; the smallest is the most important."""
    cause = CAUSES[hit.kind]
    is_past = survived(hit, later) or _is_harmless(hit, hits)
    may_follow = hit.kind in {*_CONSEQUENCES, FailureKind.PINNED, FailureKind.OOM_KILL}
    is_consequence = may_follow and any(_explains(other, hit, later) for other in hits)
    topic = 2 if cause.family in _WARNINGS else 0 if cause.is_memory else 1
    return int(is_past), int(is_consequence), topic, (0, 0) if hit.kind in _DEFINITE else hit.start


def _explains(other: Hit, hit: Hit, later: LaterLines) -> bool:
    """Return True if another hit is what a consequence followed from."""
    if hit.kind is FailureKind.PINNED:
        return other.kind is FailureKind.OPEN_FILES  # the thread that pins received no file descriptors
    if hit.kind is FailureKind.OOM_KILL:
        return _explains_kill(other, hit, later)
    if other.kind in _CONSEQUENCES:
        # The launcher reports that a rank has failed or is stopped, whatever the reason.
        return hit.kind is FailureKind.PEER_DIED and other.kind in {FailureKind.PYTHON_ERROR, FailureKind.STOPPED}
    return True


def _explains_kill(other: Hit, kill: Hit, later: LaterLines) -> bool:
    """Return True if a kill came from the time limit, or ended what another failure had left."""
    if other.kind is FailureKind.TIME_LIMIT:
        return "srun" in kill.line  # the scheduler kills what is left of the job
    is_bare = kill.line.strip() in _BARE_KILLS
    ended = CAUSES[other.kind].family is Family.DEVICE or other.kind in _UNCAUGHT
    return is_bare and ended and other.start < kill.start and not survived(other, later)


def _is_harmless(hit: Hit, hits: Sequence[Hit]) -> bool:
    """Return True if the program continued after the hit and another failure followed."""
    ignored = (_CONSEQUENCES - {FailureKind.PYTHON_ERROR}) | _OFTEN_HARMLESS
    return hit.kind in _OFTEN_HARMLESS and any(other.start > hit.start and other.kind not in ignored for other in hits)


def _finding(hit: Hit, later: LaterLines) -> Finding:
    finding = finding_in_text(
        hit.kind, hit.line, hit.context, None if hit.rank is None else {"rank": hit.rank}, hit.surroundings or "\n"
    )
    if survived(hit, later) and CAUSES[hit.kind].family not in _WARNINGS:
        end = "finished after this" if hit.start[0] < later.finished else "continued for long after this"
        return replace(finding, details=(f"The run {end}.", *finding.details), was_survived=True)
    return finding
