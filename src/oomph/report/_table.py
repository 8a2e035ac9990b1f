"""The common style of tables: a light frame on a terminal, bare columns in a pipe."""

from __future__ import annotations

from rich import box
from rich.table import Table


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
