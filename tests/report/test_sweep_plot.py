from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from oomph.report import SweepReport, save_sweep_plot, sweep_plot
from oomph.report._sweep_plot import _chart, _memory_axis, _time_axis
from oomph.sweeps import Cell, CellResult, Goal, Grid, Status, Value
from oomph.units import GIB, MIB

GRID = Grid((("batch", (16,)), ("img", (320, 416, 640))), (0, 1))


def make_report(
    grid: Grid, measure: Callable[[Cell], tuple[float, float | None, float | None]], goal: Goal | None = None
) -> SweepReport:
    """Return a report of cells with the metric, memory in MiB and seconds that `measure` gives."""
    goal = goal or Goal("mAP50")
    results = []
    for cell in grid.cells():
        metric, memory, seconds = measure(cell)
        size = None if memory is None else int(memory * MIB)
        results.append(CellResult(cell, Status.DONE, {goal.metric: metric}, gpu_peak=size, seconds=seconds))
    return SweepReport(grid, tuple(results), goal, "runs/sweep/x")


def measure(cell: Cell) -> tuple[float, float | None, float | None]:
    img = int(dict(cell.values)["img"])
    return {320: 0.5, 416: 0.6, 640: 0.58}[img] + cell.seed / 100, img * 10, img / 2


REPORT = make_report(GRID, measure)


def test_markers_have_the_numbers_of_the_points() -> None:
    chart = _chart(REPORT, _memory_axis(REPORT))
    assert [marker.label for marker in chart.markers] == ["img 320", "img 416", "img 640"]
    assert [marker.filled for marker in chart.markers] == [True, True, False]
    assert [marker.x for marker in chart.markers] == pytest.approx([3.125, 4.0625, 6.25])
    assert [marker.y for marker in chart.markers] == pytest.approx([0.505, 0.605, 0.585])
    assert chart.markers[0].y_error == pytest.approx(0.01 / 2**0.5)
    assert chart.x_label == "peak GPU memory in GiB"
    assert chart.y_label == "mAP50 (bars: standard deviation of the seeds)"


def test_a_line_connects_the_front() -> None:
    chart = _chart(REPORT, _time_axis(REPORT))
    assert chart.title == "mAP50 against time"
    assert chart.line.x == pytest.approx((160 / 60, 208 / 60))
    assert chart.line.y == pytest.approx((0.505, 0.605))


@pytest.mark.parametrize(
    ("mib", "seconds", "memory", "time"),
    [
        (512, 0.4, "peak GPU memory in MiB", "time in ms"),
        (1024, 90, "peak GPU memory in GiB", "time in s"),
        (80_000, 600, "peak GPU memory in GiB", "time in min"),
        (80_000, 9000, "peak GPU memory in GiB", "time in h"),
    ],
)
def test_units_follow_the_largest_value(mib: float, seconds: float, memory: str, time: str) -> None:
    report = make_report(GRID, lambda cell: (0.5, mib, seconds))
    assert _chart(report, _memory_axis(report)).x_label == memory
    assert _chart(report, _time_axis(report)).x_label == time


def test_memory_is_called_what_was_measured() -> None:
    host = CellResult(GRID.cells()[0], Status.DONE, {"mAP50": 0.5}, host_peak=GIB)
    gpu = CellResult(GRID.cells()[2], Status.DONE, {"mAP50": 0.5}, gpu_peak=GIB)
    reports = [SweepReport(GRID, results, Goal("mAP50"), "x") for results in ((host,), (gpu,), (host, gpu))]
    assert [_memory_axis(report).quantity for report in reports] == ["peak RAM", "peak GPU memory", "peak memory"]


def test_long_and_odd_values_are_shortened_and_printable() -> None:
    names: tuple[Value, ...] = ("models/hub/a-very-long-folder/yolov5s.yaml", "bad\n\x1b[2J")
    report = make_report(Grid((("cfg", names),)), lambda cell: (0.5, 100, 1), Goal("loss" * 30, minimize=True))
    chart = _chart(report, _memory_axis(report))
    assert [marker.label for marker in chart.markers] == ["cfg models/...5s.yaml", "cfg bad??[2J"]
    assert chart.title.endswith(" against memory")
    assert len(chart.title) < 60
    assert chart.y_label.endswith(", smaller is better")
    assert sweep_plot(report) is not None


def test_the_file_is_a_png_with_both_charts(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "plot.png"
    assert save_sweep_plot(REPORT, path)
    with Image.open(path) as image:
        assert (image.format, image.size) == ("PNG", (1600, 500))
    assert [file.name for file in path.parent.iterdir()] == ["plot.png"]


def test_a_cost_that_was_not_measured_has_no_chart() -> None:
    plot = sweep_plot(make_report(GRID, lambda cell: (0.5, None, 1.0)))
    assert plot is not None
    with Image.open(io.BytesIO(plot)) as image:
        assert image.size == (800, 500)


def test_a_single_point_is_not_drawn(tmp_path: Path) -> None:
    report = make_report(Grid((("img", (320,)),)), measure)
    assert sweep_plot(report) is None
    assert not save_sweep_plot(report, tmp_path / "plot.png")
    assert not list(tmp_path.iterdir())
