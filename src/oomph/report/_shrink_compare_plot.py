"""The picture of `oomph shrink compare`: accuracy against inference memory and latency, with the front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..charts import Chart, Line, Marker, draw_charts
from ..files import write_atomically
from ..sweeps import Point, Spread, Summary, find_front
from ..units import MIB
from ._text import cut_middle

if TYPE_CHECKING:
    from ..shrink import CompareResult, VariantReport

_METRIC = "mAP50-95"
_MAX_NAME = 36  # characters
_MILLISECOND = 0.001
_DECIMALS = 3  # of scores
_SPACE = 1.24  # length of the axis of scores, relative to their range
_MIN_SCORES = 0.02  # its least length
_FRONT = "front: no other variant beats it in mAP50-95, file, memory and latency"


def save_compare_plot(result: CompareResult, path: Path) -> None:
    """Write the plot as PNG.

    Raises:
        OSError: the file can't be written.
    """
    plot = compare_plot(result)
    write_atomically(path, lambda file: file.write(plot))


def compare_plot(result: CompareResult) -> bytes:
    """Draw mAP50-95 against inference memory and, beside it, against latency, as PNG."""
    return draw_charts([_chart(result, axis) for axis in (_MEMORY, _LATENCY)])


@dataclass(frozen=True)
class _VariantAxis:
    """Cost that a chart compares the accuracy with.

    Attributes:
        name, label: its name, and what exactly was measured.
        value: returns the cost of a variant, in the unit of the axis.
        spread: returns the ends of its error bar; no bars if None.
    """

    name: str
    label: str
    value: Callable[[VariantReport], float]
    spread: Callable[[VariantReport], tuple[float, float]] | None = None


_MEMORY = _VariantAxis("inference memory", "inference memory in MiB", lambda item: item.memory / MIB)
_LATENCY = _VariantAxis(
    "latency",
    "latency in ms (bars: quartiles)",
    lambda item: item.latency.median / _MILLISECOND,
    lambda item: (item.latency.lower / _MILLISECOND, item.latency.upper / _MILLISECOND),
)


def _chart(result: CompareResult, axis: _VariantAxis) -> Chart:
    front = [variant for variant in result.variants if variant.name in result.front]
    points = [point for point in _points(front, axis) if point.on_front]
    return Chart(
        f"{_METRIC} against {axis.name}",
        axis.label,
        _METRIC,
        Line(tuple(point.cost for point in points), tuple(point.metric for point in points)),
        tuple(_marker(variant, axis, on_front=variant in front) for variant in result.variants),
        filled_meaning=_FRONT,
        hollow_meaning="" if len(front) == len(result.variants) else "not on the front",
        y_limits=_score_limits(result.variants),
        all_labels=True,
    )


def _score(variant: VariantReport) -> float:
    """Return the accuracy as precisely as it is compared."""
    return round(variant.scores[_METRIC], _DECIMALS)


def _score_limits(variants: Sequence[VariantReport]) -> tuple[float, float]:
    """Return limits that don't magnify differences of a fraction of a point."""
    scores = [_score(variant) for variant in variants]
    middle = (min(scores) + max(scores)) / 2
    half = max((max(scores) - min(scores)) * _SPACE, _MIN_SCORES) / 2
    return max(middle - half, 0.0), middle + half


def _points(front: list[VariantReport], axis: _VariantAxis) -> tuple[Point, ...]:
    """Return the points of the front; those on the front of this chart alone are connected."""
    summaries = [
        Summary((("variant", item.name),), 1, {_METRIC: Spread(_score(item))}, None, axis.value(item)) for item in front
    ]
    return find_front(summaries, _METRIC, "seconds")


def _marker(variant: VariantReport, axis: _VariantAxis, *, on_front: bool) -> Marker:
    label, bar = cut_middle(variant.name, _MAX_NAME), None if axis.spread is None else axis.spread(variant)
    return Marker(axis.value(variant), _score(variant), label, on_front, x_range=bar)
