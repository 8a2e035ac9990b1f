"""Problems of a dataset: counted by kind, with examples, and an error if there are too many."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError

_MAX_EXAMPLES = 3
OUTSIDE_ROOTS = "outside the folders that the yaml names; add `roots: [/that/folder]` to it"


@dataclass(frozen=True)
class DataIssue:
    """One kind of problem in a dataset.

    Attributes:
        subject: "image", "box" or "label file".
        problem: why items were skipped, or what was done with them.
        count: number of items.
        broken: True if the items were skipped, False if they were fixed or are fine.
        examples: places of the first few; empty for ordinary facts.
    """

    subject: str
    problem: str
    count: int
    broken: bool
    examples: tuple[str, ...]

    def __str__(self) -> str:
        items = self.subject if self.count == 1 else plural(self.subject)
        problem = self.problem.replace("have ", "has ", 1) if self.count == 1 else self.problem
        text = f"{self.count} {items} {'skipped: ' if self.broken else ''}{problem}"
        if not self.examples:
            return text
        return f"{text} ({'' if self.count == 1 else 'first: '}{self.examples[0]})"


def plural(noun: str) -> str:
    """Return the plural of "image", "box" or "label file"."""
    return {"box": "boxes"}.get(noun, f"{noun}s")


class IssueLog:
    """Collects the issues found while a dataset is read."""

    def __init__(self) -> None:
        self._examples: dict[tuple[str, str, bool], list[str]] = {}
        self._counts: dict[tuple[str, str, bool], int] = {}

    def add(self, subject: str, problem: str, place: str | None, *, broken: bool = True, count: int = 1) -> None:
        """Record an issue and its place, if that is worth showing."""
        key = (subject, problem, broken)
        self._counts[key] = self._counts.get(key, 0) + count
        examples = self._examples.setdefault(key, [])
        if place is not None and len(examples) < _MAX_EXAMPLES:
            examples.append(place)

    def broken(self, subject: str) -> int:
        """Return how many items of a kind were skipped."""
        return sum(count for (kind, _, broken), count in self._counts.items() if kind == subject and broken)

    def summary(self) -> tuple[DataIssue, ...]:
        """Return all issues, skipped items first, then by frequency."""
        keys = sorted(self._counts, key=lambda key: (not key[2], -self._counts[key], key))
        return tuple(
            DataIssue(subject, problem, self._counts[key], broken, tuple(self._examples[key]))
            for key in keys
            for subject, problem, broken in (key,)
        )

    def raise_if_too_many(self, subject: str, total: int, max_broken_fraction: float, source: str) -> None:
        """Raise if more than the allowed fraction of items is broken.

        Raises:
            UsageError: it is.
        """
        broken = self.broken(subject)
        if not total or broken <= max_broken_fraction * total:
            return
        worst = next(issue for issue in self.summary() if issue.subject == subject)
        raise UsageError(
            f"{broken} of {total} {plural(subject)} in {source} can't be used; most frequent reason: {worst.problem} "
            f"(first: {worst.examples[0]})",
            f"fix the data, or set `max_broken_fraction` above {max_broken_fraction:g} in the settings",
        )
