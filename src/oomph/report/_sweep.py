"""Report of `oomph sweep`: the table of cells, a plot of accuracy against memory, and the recommendation."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from .. import document
from ..display import HtmlRepr
from ..sweeps import (
    CellForecast,
    CellResult,
    Goal,
    Grid,
    Point,
    Spread,
    Summary,
    Value,
    find_front,
    recommend,
    spread,
    summarize,
)
from ..units import count_of, format_number, format_size, format_time
from ._scatter_plot import scatter_plot
from ._table import FullWidth, table
from ._text import body_line, duration, printable

_MIN_PLOT_POINTS = 3
_FRONT_MARK = "*"
_USUAL = {"micro-batches": 1, "micro_batches": 1, "retries": 0}  # a column that has only this value isn't shown


@dataclass(frozen=True)
class SweepReport(HtmlRepr):
    """Report of a sweep, finished or not.

    Attributes:
        grid: The cells.
        results: The rows that exist.
        goal: What cells are compared by.
        folder: The folder of the sweep.
    """

    grid: Grid
    results: tuple[CellResult, ...]
    goal: Goal
    folder: str

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """The combinations of values with a cell that is done."""
        return summarize(self.results)

    @property
    def memory_points(self) -> tuple[Point, ...]:
        """The metric against memory, for plots."""
        return find_front(self.summaries, self.goal.metric, "memory", minimize=self.goal.minimize)

    @property
    def time_points(self) -> tuple[Point, ...]:
        """The metric against time, for plots."""
        return find_front(self.summaries, self.goal.metric, "seconds", minimize=self.goal.minimize)

    def document(self) -> dict[str, Any]:
        """Return the sweep as a JSON document."""
        return {
            "oomph": "sweep report",
            "version": 1,
            "folder": self.folder,
            "grid": document.encode(self.grid),
            "goal": document.encode(self.goal),
            "missing": len(self.grid.cells()) - len(self.results),
            "cells": [document.encode(result) for result in self.results],
            "summaries": [document.encode(summary) for summary in self.summaries],
            "front": {
                "memory": [_values_document(point) for point in self.memory_points if point.on_front],
                "seconds": [_values_document(point) for point in self.time_points if point.on_front],
            },
            "recommendation": list(recommend(self.summaries, self.goal)),
        }

    def csv(self) -> str:
        """Return the cells as CSV, one per line, with sizes in bytes."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        metrics, extras = _names(result.metrics for result in self.results), _names(r.extra for r in self.results)
        numbers = ("predicted", "host_peak", "gpu_peak", "seconds", "exit_code")
        writer.writerow([*self.grid.names, "seed", "status", *numbers, *extras, *metrics, "why"])
        for result in self.results:
            values = [value for _, value in result.cell.values]
            measured = [getattr(result, name) for name in numbers]
            other = [*(result.extra.get(name) for name in extras), *(result.metrics.get(name) for name in metrics)]
            writer.writerow([*values, result.cell.seed, result.status.value, *measured, *other, result.why])
        return out.getvalue()

    def render(self, *, plain: bool) -> RenderableType:
        """Return the table, the plot and the recommendation."""
        return Group(*self._render(plain=plain))

    def _render(self, *, plain: bool) -> Iterator[RenderableType]:
        rows = [_Row.of(values, self.results) for values in dict.fromkeys(cell.values for cell in self.grid.cells())]
        yield _table([row for row in rows if row is not None], self._front_values(), self.grid.names, plain=plain)
        yield from self._footnotes()
        if len(self.memory_points) >= _MIN_PLOT_POINTS:
            yield Text()
            yield scatter_plot(self.memory_points, self.goal.metric)
        yield Text()
        yield from (Text(sentence) for sentence in recommend(self.summaries, self.goal))
        yield Text(f"results are in {self.folder}", "dim")

    def _front_values(self) -> set[tuple[tuple[str, Value], ...]]:
        points = self.memory_points if len(self.memory_points) > 1 else ()
        return {point.summary.values for point in points if point.on_front}

    def _footnotes(self) -> Iterator[RenderableType]:
        if self._front_values():
            yield Text(f"{_FRONT_MARK} every cell with a better {self.goal.metric} needs more memory", "dim")
        failed = [result for result in self.results if not result.is_done]
        for fix, group in itertools.groupby(failed, key=lambda result: result.fix):
            for result in group:
                yield Text(f"{printable(result.cell.name)}: {result.status.value}: {printable(result.why)}.", "yellow")
            yield from (body_line(printable(line)) for line in fix)
        missing = len(self.grid.cells()) - len(self.results)
        if missing:
            yield Text(f"{count_of(missing, 'cell')} not run yet; continue with:")
            yield body_line(f"$ oomph sweep --resume {self.folder}")


@dataclass(frozen=True)
class _Row:
    """The seeds of one combination of values."""

    values: tuple[tuple[str, Value], ...]
    results: tuple[CellResult, ...]

    @classmethod
    def of(cls, values: tuple[tuple[str, Value], ...], results: Sequence[CellResult]) -> _Row | None:
        found = tuple(result for result in results if result.cell.values == values)
        return cls(values, found) if found else None

    @property
    def done(self) -> tuple[CellResult, ...]:
        return tuple(result for result in self.results if result.is_done)

    def largest(self, field: str) -> int | None:
        sizes = [getattr(result, field) for result in self.results]
        return max((size for size in sizes if size is not None), default=None)

    def metric(self, name: str) -> Spread | None:
        numbers = [result.metrics[name] for result in self.done if name in result.metrics]
        return spread(numbers) if numbers else None

    def mean_extra(self, name: str) -> float | None:
        numbers = [result.extra[name] for result in self.done if name in result.extra]
        return spread(numbers).mean if numbers else None

    @property
    def seconds(self) -> float | None:
        times = [result.seconds for result in self.done or self.results if result.seconds is not None]
        return spread(times).mean if times else None

    @property
    def status(self) -> str:
        """The status of all seeds: `done`, or `2 done, 1 killed`."""
        states = [result.status.value for result in self.results]
        if len(set(states)) == 1:
            return states[0]
        return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _table(
    rows: Sequence[_Row], front: set[tuple[tuple[str, Value], ...]], axes: Sequence[str], *, plain: bool
) -> RenderableType:
    sizes = [
        (title, field)
        for title, field in (("predicted", "predicted"), ("GPU", "gpu_peak"), ("RAM", "host_peak"))
        if any(row.largest(field) is not None for row in rows)
    ]
    extras = [
        name
        for name in _names(result.extra for row in rows for result in row.results)
        if any(row.mean_extra(name) != _USUAL.get(name) for row in rows if row.done)
    ]
    metrics = _names(result.metrics for row in rows for result in row.results)
    numbers = [*(title for title, _ in sizes), "time", *extras, *metrics]
    shown = table(*(f">{name}" for name in (*axes, *numbers)), "", "status", plain=plain)
    for column in shown.columns:
        column.no_wrap = True
    for row in rows:
        shown.add_row(
            *(Text(printable(str(value))) for _, value in row.values),
            *(_size(row.largest(field)) for _, field in sizes),
            "" if row.seconds is None else duration(row.seconds),
            *(_count_or_number(row.mean_extra(name)) for name in extras),
            *(_spread(row.metric(name)) for name in metrics),
            _FRONT_MARK if row.values in front else "",
            Text(row.status, "" if row.status == "done" else "yellow"),
        )
    return FullWidth(shown)


def _names(mappings: Iterable[Mapping[str, float]]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))


def _size(size: int | None) -> str:
    return "" if size is None else format_size(size)


def _number(number: float | None) -> str:
    return "" if number is None else format_number(number)


def _count_or_number(number: float | None) -> str:
    return f"{number:.0f}" if number is not None and number == int(number) else _number(number)


def _spread(metric: Spread | None) -> str:
    if metric is None:
        return ""
    mean = _number(metric.mean)
    if metric.deviation is None:
        return mean
    has_decimals = "." in mean and "e" not in mean
    return (
        f"{mean} ± {metric.deviation:.{len(mean.partition('.')[2])}f}"
        if has_decimals
        else f"{mean} ± {_number(metric.deviation)}"
    )


def _values_document(point: Point) -> dict[str, Value]:
    return dict(point.summary.values)


@dataclass(frozen=True)
class ForecastReport(HtmlRepr):
    """Table of the predictions of all cells, before any of them runs."""

    forecasts: tuple[CellForecast, ...]
    axes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the predictions as a JSON document."""
        return {"oomph": "sweep forecast", "version": 1, "cells": document.encode(self.forecasts)}

    def render(self, *, plain: bool) -> RenderableType:
        """Return the table, with one row per combination of values."""
        columns = (*self.axes, "predicted", "training", "micro-batches")
        rows = table(*(f">{name}" for name in columns), "", plain=plain)
        for forecast in {forecast.cell.values: forecast for forecast in self.forecasts}.values():
            rows.add_row(
                *(Text(printable(str(value))) for _, value in forecast.cell.values),
                _size(forecast.peak),
                "" if forecast.seconds is None else format_time(forecast.seconds),
                "" if forecast.micro_batches is None else str(forecast.micro_batches),
                Text("" if forecast.fits else f"skipped: {forecast.why_not}", "yellow"),
            )
        return rows
