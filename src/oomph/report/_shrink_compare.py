"""Report of `oomph shrink compare`: variants of a detector, the front, and the one to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .. import document
from ..display import HtmlRepr
from ..units import format_size
from ._shrink import measurement_lines, variant_table
from ._table import FullWidth, table
from ._text import cut_middle, printable

if TYPE_CHECKING:
    from ..shrink import CompareResult, Latency, TrainingMemory, VariantReport

_MAX_COLUMNS = 2  # variants that fit side by side, with their differences, into a hundred characters
_MAX_NAME = 32  # characters in a row
_MARK = "*"


@dataclass(frozen=True)
class CompareReport(HtmlRepr):
    """Measurements of variants, and the one that is recommended."""

    result: CompareResult

    def document(self) -> dict[str, Any]:
        """Return all measurements as JSON values."""
        return {"oomph": "shrink", "version": 1, **document.encode(self.result)}

    def render(self, *, plain: bool) -> RenderableType:
        """Return the table, the recommendation, and what the numbers are."""
        sentences = (Text(printable(line), "bold") for line in self.result.recommendation.sentences)
        return Group(self._table(plain=plain), Text(), *sentences, Text(), *map(Text, self._lines()))

    def _table(self, *, plain: bool) -> RenderableType:
        variants = self.result.variants
        if len(variants) > _MAX_COLUMNS:
            return FullWidth(self._rows(plain=plain))
        columns = variant_table(variants, plain=plain)
        columns.add_row(Text("front", "bold"), *(_MARK * (variant.name in self.result.front) for variant in variants))
        return FullWidth(columns)

    def _rows(self, *, plain: bool) -> Table:
        """Return a table with a row per variant and no differences, which would be too wide."""
        columns = list(_columns(self.result))
        rows = table("", "", *(f">{name}" for name, _ in columns), plain=plain)
        for variant in self.result.variants:
            mark = _MARK if variant.name in self.result.front else ""
            rows.add_row(
                mark, Text(cut_middle(variant.name, _MAX_NAME), "bold"), *(Text(value(variant)) for _, value in columns)
            )
        return rows

    def _lines(self) -> Iterator[str]:
        yield (
            f"{_MARK} is on the front: no other variant is better in mAP50-95, file, inference memory or latency and "
            "worse in none."
        )
        yield from measurement_lines(self.result)


def _columns(result: CompareResult) -> Iterator[tuple[str, Callable[[VariantReport], str]]]:
    yield "parameters", lambda item: f"{item.parameters:,}"
    yield "file", lambda item: format_size(item.file_bytes)
    if any(variant.training for variant in result.variants):
        yield "training\nmemory", lambda item: _format_training(item.training)
    yield "inference\nmemory", lambda item: format_size(item.memory)
    yield "latency in ms", lambda item: _format_latency(item.latency)
    for name in result.variants[0].scores:
        yield name, lambda item, name=name: f"{item.scores[name]:.3f}"  # type: ignore[misc]


def _format_training(training: TrainingMemory | None) -> str:
    return "–" if training is None else format_size(training.predicted)  # noqa: RUF001  a dash


def _format_latency(latency: Latency) -> str:
    median, lower, upper = (f"{seconds * 1000:.3g}" for seconds in (latency.median, latency.lower, latency.upper))
    return f"{median} [{lower}, {upper}]"
