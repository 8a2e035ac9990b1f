"""Plots of values per epoch: results.png and memory.png."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...charts import figure_png, hex_color, new_figure
from ...units import GIB, MIB, format_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]

# Columns of results.csv in the order of their charts; a column that a run doesn't have is left out.
_LOSSES = {
    "box_loss": "box loss",
    "obj_loss": "objectness loss",
    "cls_loss": "class loss",
    "distill_loss": "distillation loss",
}
_SCORES = {"precision": "precision", "recall": "recall", "map50": "mAP50", "map50_95": "mAP50-95"}
_LR = {"lr": "learning rate"}
_ROW_HEIGHT, _COLUMN_WIDTH = 350, 400  # pixels
_MAX_POINTS_WITH_DOTS = 100
_MAX_BUDGET_RATIO = 2.5  # a budget that is more times as large as the rest would make the rest flat


def results_plot(rows: Sequence[Row]) -> bytes:
    """Draw losses, learning rate and scores per epoch as PNG; `rows` are those of results.csv."""
    titles = {name: title for name, title in (_LOSSES | _LR | _SCORES).items() if name in {*rows[0], *_SCORES}}
    columns = math.ceil(len(titles) / 2)
    figure = new_figure(_COLUMN_WIDTH * columns, 2 * _ROW_HEIGHT)
    for number, (name, title) in enumerate(titles.items(), 1):
        area = figure.add_subplot(2, columns, number)
        area.set_title(title)
        epochs, values = _column(rows, name)
        _draw_epochs(area, epochs, values, color=hex_color(1))
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            area.set_yticks([])
            area.text(0.5, 0.5, "no values", ha="center", va="center", color="gray", transform=area.transAxes)
        elif name not in _LOSSES:
            area.set_ylim(0, 1.05 * max(finite) or 1)
        _set_epoch_axis(area, rows)
    return figure_png(figure)


def memory_plot(rows: Sequence[Row], predicted: int, budget: int) -> bytes:
    """Draw the measured peak per epoch, the predicted one and the budget, in bytes, as PNG."""
    figure = new_figure(2 * _COLUMN_WIDTH, _ROW_HEIGHT + 100)
    area = figure.add_subplot()
    epochs, measured = _column(rows, "peak_bytes")
    highest = max([predicted, *(value for value in measured if math.isfinite(value))])
    unit, unit_name = (GIB, "GiB") if highest >= GIB else (MIB, "MiB")
    is_budget_near = budget <= _MAX_BUDGET_RATIO * highest
    area.set_title("peak memory")
    area.set_ylabel(unit_name)
    _draw_epochs(area, epochs, [value / unit for value in measured], color=hex_color(1), label="measured so far")
    lines = [(predicted, "predicted", "--", hex_color(3))]
    lines += [(budget, "budget", "-", hex_color(0))] if is_budget_near else []
    for size, name, style, color in lines:
        area.axhline(size / unit, color=color, linestyle=style, label=f"{name}, {format_size(size)}")
    if not is_budget_near:
        area.plot([], [], color=hex_color(0), label=f"budget, {format_size(budget)} (above the chart)")
    area.set_ylim(0, 1.1 * max(highest, budget if is_budget_near else 0) / unit)
    _set_epoch_axis(area, rows)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure_png(figure)


def _column(rows: Sequence[Row], name: str) -> tuple[list[int], list[float]]:
    """Return the epochs in which a column has a value, and the values; NaN, a gap in the line, if infinite."""
    known = [(int(row["epoch"]), float(row[name])) for row in rows if row.get(name) is not None]
    return [epoch for epoch, _ in known], [value if math.isfinite(value) else math.nan for _, value in known]


def _draw_epochs(area: Axes, epochs: Sequence[int], values: Sequence[float], *, color: str, label: str = "") -> None:
    marker = "." if len(epochs) <= _MAX_POINTS_WITH_DOTS else ""
    area.plot(epochs, values, color=color, marker=marker, label=label)
    area.grid(visible=True, color="#e1e1e1")
    area.set_axisbelow(True)


def _set_epoch_axis(area: Axes, rows: Sequence[Row]) -> None:
    """Show all epochs, also those that weren't validated."""
    first, last = int(rows[0]["epoch"]), int(rows[-1]["epoch"])
    margin = max((last - first) * 0.03, 0.5)
    area.set_xlim(first - margin, last + margin)
    area.locator_params(axis="x", integer=True, min_n_ticks=1)
    area.set_xlabel("epoch")
