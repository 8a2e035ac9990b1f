"""Rules of the linter: a name, a title, and a function that yields problems."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ._problem import Problem
from .sources import Document

Check = Callable[[Document], Iterator[Problem]]


class RuleFamily(enum.Enum):
    """Group of rules; each is a folder in `rules/`."""

    ACCUMULATION = "accumulation"
    PRECISION = "mixed precision"
    LEAKS = "leaks"
    DATA = "data loading"
    OUT_OF_MEMORY = "out-of-memory handling"
    COMMANDS = "commands and settings"
    KERAS = "Keras and TFLite"


@dataclass(frozen=True)
class Rule:
    """One kind of mistake.

    Attributes:
        name: The name in reports and in `# oomph: ignore[name]`.
        family: The group.
        title: The mistake in a few words.
        check: Yields the problems of a document.
        triggers: A document is checked only if it contains one of these words; empty means always. It keeps the
            linter fast on code that has nothing to do with the rule.
        is_fixable: True if `--fix` can correct some of the problems.
    """

    name: str
    family: RuleFamily
    title: str
    check: Check
    triggers: tuple[str, ...] = ()
    is_fixable: bool = False

    def applies_to(self, text: str) -> bool:
        """Return True if a text contains one of the triggers."""
        return not self.triggers or any(word in text for word in self.triggers)
