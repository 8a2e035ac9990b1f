"""Lines that mention failures but report none: of articles, release notes, tables, alert rules and diffs.

People paste these beside logs, or pipe whole files into `oomph explain`. Only texts that are read as a whole are
searched for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_MAX_LINES = 2000  # of a text that may be an article
_MIN_PROSE_LINES = 4
_MIN_PROSE = 0.6  # the share of an article's characters that is in sentences
_MIN_WORDS = 5
_MIN_ENDS = 1 / 3  # ends of sentences for each of its lines
_SENTENCE_END = re.compile(r"[.!?:][\"')\]*_]{0,3}(?:\s|$)")
_WORD = re.compile(r"[A-Za-z][a-z']+")
_SMALL_WORD = re.compile(
    r"\b(?:an?|and|are|as|at|by|can|do|does|for|from|if|in|is|it|its|not|of|on|or|so|that|the|this|to|when|with|you)\b",
    re.IGNORECASE,
)
# What programs print and people don't write: with one such line outside of a code block, a text is no article.
_RECORD_PARTS = (
    r"^\s*(?:\[[\w ]|\(\w+\) \[|>|\+-{3}|[\[(]?\d{4}[-/]\d\d[-/]\d\d|[A-Z][a-z]{2} +\d{1,2} \d\d:|File \")",
    r"^\s*(?:Traceback|Error in |terminate called|what\(\): |slurmstepd|srun|Epoch \d|\$ |>>>|In \[|!!!)",
    r"^\s*(?:(?:\w+\.)*\w*(?:Error|Exception|Warning) ?:|(?:ERROR|WARN(?:ING)?|INFO|FATAL|CRITICAL)\b)",
    r"\d\d:\d\d:\d\d|\d(?:it/s|s/it)|\d+/\d+ \[|[\w/-]\.(?:py|cc|cu|cpp|c|h|go|rs|R):\d+",
    r"\[(?:rank|default)?\d+\]:|(?i:CUDA error):",
    r"^\s*(?:\w+_\w+|main|srv)(?: +\w+)?: ",  # functions that log under their name
)
_RECORD = re.compile("|".join(_RECORD_PARTS))
# Who writes so has the failure, or asks about it.
_OWN = re.compile(
    r"\bI\b|\b[Mm](?:y|ine)\b|\b(?:[Aa]ny|[Ss]ome) (?:idea|help|hint|suggestion|clue)s?\b"
    r"|\b[Hh]elp (?:me|please|with this)\b|\b(?:[Pp]lease|me) help\b"
    r"|\b[Aa]nyone\b|\b[Tt]hanks\b|\bexpected behaviou?r\b|\bto reproduce\b|\bsteps to\b"
)
_EVENT = re.compile(r"\b(?:crashed|died)\b")  # "The kernel crashed while executing code in the current cell"
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_DIFF_START = re.compile(r"^(?:diff --git |@@ -\d+(?:,\d+)? \+\d+)")
_DIFF_LINE = re.compile(r"^(?:[-+ ]|@@ |index [0-9a-f]|diff --git |(?:new|deleted) file|similarity|rename |$)")
_VERSION = re.compile(
    r"^\s*(?:#{1,4} +|=+ *)?(?:\[?(?:[Vv]ersion |[Rr]elease )?v?\d+\.\d+[\w.+-]*\]?|\[?Unreleased\]?)"
    r"(?:\s*[-\u2013\u2014(:,].{0,40})?\s*=*$"
    r"|^\W*(?:[\w.]+ ){0,4}(?:[Rr]elease notes|RELEASE NOTES|[Cc]hange ?[Ll]og|CHANGELOG|[Ww]hat's new)\b.{0,40}$"
)
_LIST = re.compile(
    r"^\s*(?:[-*+•·‣] |\d{1,2}[.)] |#{2,5} |={3,}|-{3,}|$)|^\s{2,}\S|^\*\*\w+\*\*$|^[A-Z]\w+(?: [a-z]+)?:?$|^Released "
)
_TABLE_RULE = re.compile(r"^\s*\|?\s*:?-{3,}:?\s*(?:\|\s*:?-{3,}:?\s*)+\|?\s*$")
_YAML = re.compile(r"^(?:\s{2,}\S|\s*(?:- )?[a-z_]+:(?:\s|$))")
_ALERT, _ALERT_EXPRESSION = re.compile(r"^\s*- alert: \w"), re.compile(r"^\s*expr: ")


def mentioning_lines(lines: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the lines of a text that only mention failures."""
    return frozenset((*_diffs(lines), *_release_notes(lines), *_tables(lines), *_alerts(lines), *_articles(lines)))


def _diffs(lines: Sequence[str]) -> Iterator[int]:
    is_diff = False
    for number, line in enumerate(lines):
        is_diff = _DIFF_START.match(line) is not None or (is_diff and _DIFF_LINE.match(line) is not None)
        if is_diff:
            yield number


def _release_notes(lines: Sequence[str]) -> Iterator[int]:
    """Yield the lines of lists under the name of a version."""
    is_list = False
    for number, line in enumerate(lines):
        is_list = _VERSION.match(line) is not None or (is_list and _LIST.match(line) is not None)
        if is_list:
            yield number


def _tables(lines: Sequence[str]) -> Iterator[int]:
    """Yield the rows of tables in Markdown."""
    is_table = False
    for number, line in enumerate(lines):
        is_table = _TABLE_RULE.match(line) is not None or (is_table and "|" in line)
        if is_table:
            yield number


def _alerts(lines: Sequence[str]) -> Iterator[int]:
    """Yield the lines of rules for alerts."""
    if any(_ALERT.match(line) for line in lines) and any(_ALERT_EXPRESSION.match(line) for line in lines):
        yield from (number for number, line in enumerate(lines) if _YAML.match(line))


def _articles(lines: Sequence[str]) -> Iterator[int]:
    """Yield the sentences of a text that explains: it consists of them, and nobody speaks of a failure of their own."""
    if len(lines) > _MAX_LINES or _OWN.search("\n".join(lines)):
        return
    text = list(_outside_fences(lines))
    if any(_RECORD.search(line) for _, line in text):
        return
    prose = [number for number, line in text if _is_sentence(line)]
    size = sum(len(lines[number].strip()) for number in prose)
    if len(prose) < _MIN_PROSE_LINES or size < _MIN_PROSE * sum(len(line.strip()) for _, line in text):
        return
    ends = sum(len(_SENTENCE_END.findall(lines[number])) for number in prose)
    if ends < _MIN_ENDS * len(prose):
        return  # programs don't end what they print with a full stop
    near = {number + step for number in prose for step in (-1, 0, 1)}  # titles, and the rest of a paragraph
    yield from (number for number, line in text if number in near and not _EVENT.search(line))


def _outside_fences(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    is_code = False
    for number, line in enumerate(lines):
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code:
            yield number, line


def _is_sentence(line: str) -> bool:
    return len(_WORD.findall(line)) >= _MIN_WORDS and _SMALL_WORD.search(line) is not None
