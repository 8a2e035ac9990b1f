from __future__ import annotations

import pytest
from rich.text import Text

from oomph.report.watch._columns import Column, draw_columns, text_column

ROWS = ("alpha", "be")


def columns() -> list[Column[str]]:
    return [
        text_column("name", 3, ROWS, str),
        text_column("size", 2, ROWS, lambda row: str(len(row)), right=True),
        Column("note", 1, lambda row, width: Text("#" * width), 4, 10),
    ]


@pytest.mark.parametrize(
    ("width", "heading", "first"),
    [
        (30, "name   size  note            ", "alpha     5  ##########      "),
        (19, "name   size  note  ", "alpha     5  ######"),
        (16, "name   size     ", "alpha     5     "),
        (10, "name      ", "alpha     "),
        (3, "na…", "al…"),
        (1, "…", "…"),
    ],
)
def test_the_least_important_column_is_dropped_first(width: int, heading: str, first: str) -> None:
    title, lines = draw_columns(columns(), ROWS, width)
    assert title.plain.ljust(width) == heading.ljust(width)[:width]
    assert lines[0].plain.ljust(width) == first.ljust(width)[:width]
    assert {line.cell_len for line in (title, *lines)} == {width}


def test_wide_characters_keep_the_columns_aligned() -> None:
    rows = ("训练进程", "a")
    _, lines = draw_columns([text_column("", 2, rows, str), text_column("", 1, rows, lambda _: "x")], rows, 12)
    assert [line.plain for line in lines] == ["训练进程  x ", "a         x "]


def test_no_rows_have_only_a_heading() -> None:
    heading, lines = draw_columns([text_column("pid", 1, (), str)], (), 8)
    assert (heading.plain, lines) == ("pid     ", [])
