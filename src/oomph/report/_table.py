"""The common style of tables: a light frame on a terminal, bare columns in a pipe."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table

_UNLIMITED = 10_000


def table(*columns: str, plain: bool, title: str | None = None) -> Table:
    """Return an empty table; a column whose heading starts with ">" is right-aligned."""
    empty = Table(
        title=None if plain else title,
        title_justify="left",
        title_style="bold",
        box=None if plain else box.SIMPLE_HEAD,
        pad_edge=False,
        show_header=any(column.lstrip(">") for column in columns),
    )
    for column in columns:
        empty.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    return empty


@dataclass(frozen=True)
class FullWidth:
    """A table of numbers that is never narrowed: a terminal wraps its lines, where rich would cut the numbers."""

    table: Table

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.table)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        unlimited = options.update(max_width=_UNLIMITED)
        width = Measurement.get(console, unlimited, self.table).maximum
        yield from console.render(self.table, options.update(width=max(width, options.max_width)))
