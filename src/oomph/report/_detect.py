"""Reports of `oomph val` and `oomph detect`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..display import HtmlRepr
from ..units import count_of
from ._table import table

if TYPE_CHECKING:
    from ..detect import DetectResult, Scores


@dataclass(frozen=True)
class ScoresReport(HtmlRepr):
    """Metrics of a detector.

    Attributes:
        scores: the metrics.
        notes: sentences about issues of the data.
        folder: where the plots are; None if there are none.
    """

    scores: Scores
    notes: tuple[str, ...] = ()
    folder: str | None = None

    def document(self) -> dict[str, Any]:
        """Return all metrics and curves as JSON values."""
        extra = {"notes": list(self.notes), "folder": self.folder}
        return {"oomph": "scores", "version": 1, **document.encode(self.scores), **extra}

    def render(self, *, plain: bool) -> RenderableType:
        """Return a table by class, and a line by object size."""
        scores = self.scores
        rows = table("", ">boxes", ">mAP50", ">mAP50-95", ">precision", ">recall", plain=plain)
        overall = (scores.map50, scores.map50_95, scores.precision, scores.recall)
        rows.add_row(Text("all", "bold"), str(scores.boxes), *(_format_score(value) for value in overall))
        for item in scores.by_class:
            values = (item.map50, item.map50_95, item.precision, item.recall)
            rows.add_row(item.name, str(item.boxes), *(_format_score(value) for value in values))
        sizes = ", ".join(f"{name} {_format_score(value)}" for name, value in scores.by_size.items())
        lines = [f"mAP50-95 by object size: {sizes}; {count_of(scores.images, 'image')}"]
        lines += [f"plots in {self.folder}"] if self.folder else []
        return Group(rows, Text(), *map(Text, lines))


@dataclass(frozen=True)
class DetectReport(HtmlRepr):
    """Objects detected in images."""

    result: DetectResult

    def document(self) -> dict[str, Any]:
        """Return every box as JSON values."""
        return {"oomph": "detections", "version": 1, **document.encode(self.result)}

    def render(self, *, plain: bool) -> RenderableType:
        """Return a line per image."""
        del plain
        lines = []
        for image in self.result.images:
            counts = Counter(box[4] for box in image.boxes)
            objects = ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "no objects"
            lines.append(f"{image.image}: {objects} ({image.drawing})")
        lines += [f"{path}: skipped, {reason}" for path, reason in self.result.skipped]
        lines += [self.result.hint] if self.result.hint else []
        return Group(*(Text(line) for line in lines))


def _format_score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"  # noqa: RUF001  an en dash, as in tables
