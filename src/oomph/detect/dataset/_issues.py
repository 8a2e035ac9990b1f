"""What can't be used of a data set: counted by kind, with examples, and a stop where it is too much."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError

_EXAMPLES = 3
OUTSIDE = "outside every folder that the yaml names; `roots: [/that/folder]` in the yaml names one more"


@dataclass(frozen=True)
class SetAside:
    """One kind of trouble with a data set.

    Attributes:
        what: "image", "box" or "label file".
        why: the kind, in words.
        count: how many there were.
        broken: whether they were left out as broken, or only mended or noticed.
        examples: the first few places.
    """

    what: str
    why: str
    count: int
    broken: bool
    examples: tuple[str, ...]

    def __str__(self) -> str:
        things = self.what if self.count == 1 else plural(self.what)
        done = "set aside" if self.broken else "noticed"
        return f"{self.count} {things} {done}: {self.why} ({self.examples[0]})"


def plural(what: str) -> str:
    """Several of a kind of thing."""
    return {"box": "boxes"}.get(what, f"{what}s")


class Collector:
    """Gathers what is set aside while a data set is read."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, bool], list[str]] = {}
        self._counts: dict[tuple[str, str, bool], int] = {}

    def add(self, what: str, why: str, place: str, *, broken: bool = True, count: int = 1) -> None:
        """Note something, and where."""
        key = (what, why, broken)
        self._counts[key] = self._counts.get(key, 0) + count
        examples = self._found.setdefault(key, [])
        if len(examples) < _EXAMPLES:
            examples.append(place)

    def broken(self, what: str) -> int:
        """How many of a kind of thing were left out as broken."""
        return sum(count for (kind, _, broken), count in self._counts.items() if kind == what and broken)

    def told(self) -> tuple[SetAside, ...]:
        """Everything, the most frequent first."""
        order = sorted(self._counts, key=lambda key: (not key[2], -self._counts[key], key))
        return tuple(
            SetAside(what, why, self._counts[what, why, broken], broken, tuple(self._found[what, why, broken]))
            for what, why, broken in order
        )

    def stop_if_too_many(self, what: str, total: int, tolerated: float, source: str) -> None:
        """Refuse a data set of which too much is broken.

        Raises:
            UsageError: more than the tolerated share is.
        """
        broken = self.broken(what)
        if not total or broken <= tolerated * total:
            return
        worst = next(one for one in self.told() if one.what == what)
        raise UsageError(
            f"{broken} of {total} {plural(what)} of {source} can't be used, most of them because: {worst.why} "
            f"(such as {worst.examples[0]})",
            f"mend the data, or set `tolerated` above {tolerated:g} in the settings",
        )
