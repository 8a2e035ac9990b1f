"""The reports of `oomph val` and `oomph detect`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..units import count_of
from ._table import table

if TYPE_CHECKING:
    from ..detect import FoundObjects, Scores


@dataclass(frozen=True)
class ScoresReport:
    """How good a detector is, and what was said on the way: what of the data was set aside."""

    scores: Scores
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Everything, curves included."""
        return {"oomph": "scores", "version": 1, **document.encode(self.scores), "notes": list(self.notes)}

    def render(self, *, plain: bool) -> RenderableType:
        """A table by class, and by size of the objects."""
        scores = self.scores
        rows = table("", ">boxes", ">mAP50", ">mAP50-95", ">precision", ">recall", plain=plain)
        whole = (scores.map50, scores.map50_95, scores.precision, scores.recall)
        rows.add_row(Text("all", "bold"), str(scores.boxes), *(_share(value) for value in whole))
        for one in scores.by_class:
            figures = (one.map50, one.map50_95, one.precision, one.recall)
            rows.add_row(one.name, str(one.boxes), *(_share(value) for value in figures))
        sizes = ", ".join(f"{name} {_share(value)}" for name, value in scores.by_size.items())
        return Group(rows, Text(), Text(f"mAP50-95 by object size: {sizes}; {count_of(scores.images, 'image')}"))


@dataclass(frozen=True)
class FoundReport:
    """What was found in images."""

    found: FoundObjects

    def document(self) -> dict[str, Any]:
        """Every box."""
        return {"oomph": "found", "version": 1, **document.encode(self.found)}

    def render(self, *, plain: bool) -> RenderableType:
        """A line an image."""
        del plain
        lines = []
        for one in self.found.images:
            counts = Counter(box[4] for box in one.boxes)
            words = ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "nothing"
            lines.append(f"{one.image}: {words} ({one.picture})")
        lines += [f"{path}: set aside, {reason}" for path, reason in self.found.set_aside]
        lines += [self.found.advice] if self.found.advice else []
        return Group(*(Text(line) for line in lines))


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"  # noqa: RUF001  a dash, as tables have it where there is nothing
