"""The picture of `oomph sweep`: the metric against memory and against time, with the front marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..charts import Chart, Line, Marker, draw_charts
from ..files import write_atomically
from ..sweeps import Point
from ..units import GIB, MIB
from ._sweep import SweepReport
from ._text import cut_middle

_MIN_POINTS = 2
_MAX_METRIC, _MAX_VALUE = 40, 18  # characters
_TIME_UNITS = ((2 * 3600.0, 3600.0, "h"), (120.0, 60.0, "min"), (1.0, 1.0, "s"), (0.0, 0.001, "ms"))


def save_sweep_plot(report: SweepReport, path: Path) -> bool:
    """Write the plot as PNG; return False if there are too few points for one.

    Raises:
        OSError: the file can't be written.
    """
    plot = sweep_plot(report)
    if plot is None:
        return False
    write_atomically(path, lambda file: file.write(plot))
    return True


def sweep_plot(report: SweepReport) -> bytes | None:
    """Draw the metric against memory and, beside it, against time, as PNG; None if neither has two points."""
    axes = [make(report) for make in (_memory_axis, _time_axis)]
    charts = [_chart(report, axis) for axis in axes if len(axis.points) >= _MIN_POINTS]
    return draw_charts(charts) if charts else None


@dataclass(frozen=True)
class _CostAxis:
    """Cost that a chart compares the metric with.

    Attributes:
        points: the points of the chart.
        name, quantity: memory or time, and what exactly was measured.
        more: what a cell that costs more does.
        factor, unit: the unit of the axis.
    """

    points: tuple[Point, ...]
    name: str
    quantity: str
    more: str
    factor: float
    unit: str


def _memory_axis(report: SweepReport) -> _CostAxis:
    points = report.memory_points
    unit = (GIB, "GiB") if _largest_cost(points) >= GIB else (MIB, "MiB")
    return _CostAxis(points, "memory", _memory_quantity(report), "needs more memory", *unit)


def _time_axis(report: SweepReport) -> _CostAxis:
    points = report.time_points
    longest = _largest_cost(points)
    unit = next((factor, unit) for least, factor, unit in _TIME_UNITS if longest >= least)
    return _CostAxis(points, "time", "time", "takes more time", *unit)


def _largest_cost(points: Sequence[Point]) -> float:
    return max((point.cost for point in points), default=0.0)


def _memory_quantity(report: SweepReport) -> str:
    on_gpu = {result.gpu_peak is not None for result in report.results if result.is_done}
    return "peak memory" if len(on_gpu) > 1 else "peak GPU memory" if True in on_gpu else "peak RAM"


def _chart(report: SweepReport, axis: _CostAxis) -> Chart:
    markers = tuple(_marker(report, point, axis.factor) for point in axis.points)
    front = [marker for marker in markers if marker.filled]
    return Chart(
        f"{cut_middle(report.goal.metric, _MAX_METRIC)} against {axis.name}",
        f"{axis.quantity} in {axis.unit}",
        _metric_label(report, markers),
        Line(tuple(marker.x for marker in front), tuple(marker.y for marker in front)),
        markers,
        filled_meaning=f"front: every better cell {axis.more}",
        hollow_meaning="" if len(front) == len(markers) else "not on the front",
    )


def _marker(report: SweepReport, point: Point, factor: float) -> Marker:
    error = point.summary.metrics[report.goal.metric].deviation
    return Marker(point.cost / factor, point.metric, _label(report, point), point.on_front, error)


def _label(report: SweepReport, point: Point) -> str:
    """Return the values of a point, such as `batch 16, img 416`, without those that all cells share."""
    varied = {name for name, values in report.grid.axes if len(values) > 1}
    return ", ".join(
        f"{name} {cut_middle(str(value), _MAX_VALUE)}" for name, value in point.summary.values if name in varied
    )


def _metric_label(report: SweepReport, markers: Sequence[Marker]) -> str:
    label = cut_middle(report.goal.metric, _MAX_METRIC)
    if report.goal.minimize:
        label += ", smaller is better"
    if any(marker.y_error for marker in markers):
        label += " (bars: standard deviation of the seeds)"
    return label
