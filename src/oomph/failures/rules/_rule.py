"""A rule: words that always occur in a failure's text, and a pattern around them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .._kinds import FailureKind


@dataclass(frozen=True)
class Rule:
    """One form of a failure: `words` that occur in the text, and a `pattern` that must match around them."""

    kind: FailureKind
    words: str
    pattern: re.Pattern[str] | None = None

    def matches(self, text: str) -> bool:
        """Return True if the words occur in a text and the pattern matches."""
        return self.words in text and (self.pattern is None or self.pattern.search(text) is not None)


# The start of an exception line: a prefix of the logger or rank, then a dotted name.
RAISED = r"(?:^|[\s|\]:>])[\w.]*(?:Error|Exception|Exit)\w*: "

# The exit status as shells, runners, launchers and subprocess print it.
STATUS = (
    r"(?i:exit(?:ed)?[ _-]?(?:with )?(?:code|status)|return ?code|non-zero (?:exit status|code))\s{0,2}[:=]?\s{0,8}"
)


def rule(kind: FailureKind, words: str, pattern: str | None = None) -> Rule:
    """Return a rule; the pattern's `^` and `$` match at line breaks."""
    return Rule(kind, words, re.compile(pattern, re.MULTILINE) if pattern else None)
