"""Rows of columns that fit a width: the least important columns are dropped, the others share what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.text import Text

GAP = 2
Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table.

    Attributes:
        title: Its heading.
        importance: The column with the smallest importance is dropped first.
        cell: Draws the cell of a row at a width.
        min_width: It is dropped rather than narrower.
        max_width: It isn't wider.
        right: True if it is aligned to the right.
    """

    title: str
    importance: int
    cell: Callable[[Row, int], Text]
    min_width: int
    max_width: int
    right: bool = False


def text_column(
    title: str,
    importance: int,
    rows: Sequence[Row],
    text: Callable[[Row], str],
    style: str = "",
    *,
    right: bool = False,
) -> Column[Row]:
    """Return a column as wide as its longest text."""
    width = max((cell_len(cell) for cell in (title, *map(text, rows))), default=0)
    return Column(title, importance, lambda row, _: Text(text(row), style), width, width, right)


def draw_columns(columns: Sequence[Column[Row]], rows: Sequence[Row], width: int) -> tuple[Text, list[Text]]:
    """Return the heading and the lines of a table, each exactly `width` wide."""
    shown = _choose(columns, width)
    widths = _share(shown, width)
    heading = _join([_fit(Text(column.title, "dim"), widths[column], right=column.right) for column in shown], width)
    lines = [
        _join([_fit(column.cell(row, widths[column]), widths[column], right=column.right) for column in shown], width)
        for row in rows
    ]
    return heading, lines


def _choose(columns: Sequence[Column[Row]], width: int) -> list[Column[Row]]:
    shown = [column for column in columns if column.max_width]
    while len(shown) > 1 and sum(column.min_width + GAP for column in shown) - GAP > width:
        shown.remove(min(shown, key=lambda column: column.importance))
    return shown


def _share(columns: Sequence[Column[Row]], width: int) -> dict[Column[Row], int]:
    """Return the width of each column: texts that would be dropped first get what they need, the others the rest."""
    left = max(width - sum(column.min_width + GAP for column in columns) + GAP, 0)
    widths = {}
    for column in sorted(columns, key=lambda column: column.importance):
        extra = min(left, column.max_width - column.min_width)
        widths[column], left = column.min_width + extra, left - extra
    return widths


def _fit(cell: Text, width: int, *, right: bool) -> Text:
    text = cell.copy()
    text.truncate(width, overflow="ellipsis")
    missing = width - text.cell_len
    if right:
        text.pad_left(missing)
    else:
        text.pad_right(missing)
    return text


def _join(cells: Sequence[Text], width: int) -> Text:
    line = Text(" " * GAP).join(cells)
    line.truncate(width, overflow="ellipsis", pad=True)
    return line
