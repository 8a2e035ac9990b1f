from __future__ import annotations

import pytest

from oomph.monitor import ProcessInfo, ProcessUse
from oomph.report.watch._history import History
from oomph.report.watch._resources import MemoryRow
from oomph.report.watch._tables import draw_sparkline, memory_table, process_table
from oomph.units import GIB

from .readings import process


def test_a_sparkline_is_scaled_to_the_limit() -> None:
    assert draw_sparkline([None, 0, 25, 50, 100, 130], 100) == " ▁▂▄██"


def test_without_a_limit_it_is_scaled_to_the_largest_value() -> None:
    assert draw_sparkline([1, 2, 4], None) == "▂▄█"
    assert draw_sparkline([0, 0], None) == "▁▁"
    assert draw_sparkline([None, None], None) == "  "


@pytest.mark.parametrize(("used", "style"), [(7, "green"), (8, "yellow"), (9.3, "red"), (11, "red")])
def test_the_bar_shows_how_full_it_is(used: float, style: str) -> None:
    _, (line,) = memory_table([MemoryRow("ram", "RAM", used * GIB, 10 * GIB)], History(), 1.0, 100)
    assert "█" * min(round(used), 10) + "░" * max(10 - round(used), 0) in line.plain
    assert f"{used / 10:.0%}" in line.plain
    assert style in {str(span.style) for span in line.spans}


def test_each_limit_stands_beside_its_value_with_trend_and_forecast() -> None:
    history = History(120)
    for second in range(60):
        history.add(1000.0 + second, {"ram": GIB * (1 + second / 59)})
    heading, (line,) = memory_table([MemoryRow("ram", "RAM", 2 * GIB, 4 * GIB)], history, 1.0, 110)
    assert heading.plain.split() == ["used", "of", "last", "2", "min", "trend", "full", "in"]
    assert line.plain.startswith("RAM  2 GiB  4 GiB  █████░░░░░    50%  ")
    assert "▄" in line.plain
    assert line.plain.rstrip().endswith("+1.02 GiB/min  2 min")


def test_a_row_without_a_limit_has_no_bar() -> None:
    _, (line,) = memory_table([MemoryRow("tree1", "process tree", GIB, None, "3 child processes")], History(), 1.0, 100)
    assert "%" not in line.plain
    assert line.plain.rstrip().endswith("3 child processes")


def test_long_intervals_show_one_cell_per_sample() -> None:
    history = History(60 * 40)
    for minute in range(40):
        history.add(60.0 * minute, {"ram": GIB * minute})
    heading, (line,) = memory_table([MemoryRow("ram", "RAM", GIB, 40 * GIB)], history, 60.0, 110)
    assert "history" in heading.plain
    assert "▁▁▁▁▁▁▁▁▂▂▂▂▂" in line.plain


def test_processes_are_listed_with_gpu_memory_names_and_commands() -> None:
    uses = [process(42, 4 * GIB, 3, {0: 11 * GIB, 1: GIB}), process(7)]
    infos = {42: ProcessInfo("python", "ann", ("/opt/bin/python", "train.py"), 1.0)}
    heading, (first, second) = process_table(uses, infos, {42: "+1 MiB/min"}, 42, 110)
    assert heading.plain.split() == ["pid", "GPU", "on", "RAM", "name", "RAM", "trend", "children", "user", "command"]
    assert first.plain.split() == [
        ">42",
        "12",
        "GiB",
        "0,1",
        "4.29",
        "GiB",
        "python",
        "+1",
        "MiB/min",
        "3",
        "ann",
        "python",
        "train.py",
    ]
    assert second.plain.split() == ["7", "1", "GiB", "python"]
    assert "reverse" in {str(span.style) for span in first.spans}
    assert "reverse" not in {str(span.style) for span in second.spans}


def test_a_narrow_list_keeps_pid_and_memory() -> None:
    heading, (line,) = process_table([process(42, GIB, 3, {0: GIB})], {}, {}, None, 24)
    assert heading.plain.split() == ["pid", "GPU", "RAM"]
    assert line.plain.split() == ["42", "1", "GiB", "1.29", "GiB"]


def test_without_gpus_there_is_no_gpu_column() -> None:
    heading, _ = process_table([process(42)], {}, {}, None, 110)
    assert "GPU" not in heading.plain


def test_what_the_driver_does_not_report_is_a_question_mark() -> None:
    uses = [process(42, GIB, 0, {0: 0}), ProcessUse(9, "?", (), {0: GIB})]
    _, (hidden, outside) = process_table(uses, {}, {}, None, 110)
    assert hidden.plain.split()[:3] == ["42", "?", "0"]
    assert outside.plain.split() == ["9", "1", "GiB", "0", "outside", "container"]


def test_hostile_names_are_shown_as_text() -> None:
    use = ProcessUse(5, "\x1b[2J[red]", process(5).members)
    infos = {5: ProcessInfo("x", "a\nb", ("/bin/\x1b]0;x\x07", "[bold]"), 1.0)}
    _, (line,) = process_table([use], infos, {}, None, 110)
    assert line.plain.isprintable()
    assert "?[2J[red]" in line.plain
    assert "[bold]" in line.plain
