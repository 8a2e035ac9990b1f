from __future__ import annotations

import itertools

import pytest

from oomph.monitor import Reading
from oomph.report.watch._screen import Page, add_reading, draw_screen, new_history, share_height, visible_range
from oomph.units import GIB

from .readings import NOW, machine_reading, process, reading


def page(last: Reading | None = None, selected: int | None = 42, **more: object) -> Page:
    last, history = last or machine_reading(), new_history(1.0)
    for second in range(40):
        add_reading(history, machine_reading(time=NOW - 40 + second, used=8 * GIB - (40 - second) * GIB // 10))
    add_reading(history, last)
    return Page(last, history, selected, **more)  # type: ignore[arg-type]


def draw(shown: Page, width: int = 110, height: int = 30) -> list[str]:
    return [line.rstrip() for line in draw_screen(shown, width, height).plain.split("\n")]


def test_the_screen_has_all_parts() -> None:
    lines = draw(page())
    assert len(lines) == 30
    assert lines[0].startswith("This machine, ")
    names = [line.split("  ")[0] for line in lines[2:8]]
    assert names == ["GPU 0", "GPU 1", "cgroup", "RAM", "swap", "shared memory"]
    assert "12 GiB  16 GiB" in lines[2]
    assert "71 % busy" in lines[2]
    assert "+6 GiB/min" in lines[5]
    assert lines[10].split()[:3] == [">42", "11", "GiB"]
    assert lines[13].startswith("python 42, RAM 4.29 GiB in 4 processes (steady), GPU 0 11 GiB")
    assert lines[-1] == "q quit  ↑↓ select  Enter open  (the run continues)"


def test_the_page_of_a_process_shows_its_tree_and_the_way_back() -> None:
    sample = {"ram_total": 64 * GIB, "ram_available": GIB, "rss": 4 * GIB, "children": 1}
    last = reading(42, process(42, 4 * GIB), process(43), sample=sample)
    lines = draw(page(last, can_go_back=True, notice="Process 43 has ended."))
    assert lines[0].startswith("Process 42 (python), ")
    assert lines[0].endswith("Process 43 has ended.")
    assert lines[2].startswith("process tree")
    assert "1 child process" in lines[2]
    # The machine's page has recorded this tree before.
    assert "▇" in lines[2] or "█" in lines[2]
    assert "Esc back" in lines[-1]


def test_a_machine_without_processes_says_so() -> None:
    assert "No process looks like training or uses a GPU." in draw(page(reading(None, sample={}), None))


def test_a_small_terminal_keeps_the_most_important_parts() -> None:
    lines = draw(page(), 40, 10)
    assert len(lines) == 10
    assert max(map(len, lines)) <= 40
    assert [line.split("  ")[0] for line in lines[1:5]] == ["GPU 0", "GPU 1", "cgroup", "RAM"]
    assert "12 GiB  16 GiB" in lines[1]
    assert "75%" in lines[1]
    assert lines[6].startswith(">42")
    assert lines[8].startswith("python 42, RAM")
    assert lines[-1].startswith("q quit")


@pytest.mark.parametrize(("width", "height"), list(itertools.product((1, 7, 20, 40, 79, 300), (1, 2, 5, 6, 12, 60))))
def test_every_size_is_filled_exactly(width: int, height: int) -> None:
    text = draw_screen(page(machine_reading(*(process(n + 1, gpu={0: GIB}) for n in range(50))), 30), width, height)
    lines = text.split("\n")
    assert len(lines) <= height
    assert max(line.cell_len for line in lines) <= width


def test_the_selected_process_is_always_visible() -> None:
    shown = page(machine_reading(*(process(n + 1) for n in range(500))), 333)
    for height in (8, 12, 30):
        assert any(line.lstrip().startswith(">333") for line in draw(shown, 80, height)), height


@pytest.mark.parametrize("height", range(40))
def test_no_line_is_given_twice(height: int) -> None:
    shares = share_height(height, rows=6, processes=12, details=4)
    assert shares.rows + shares.processes + shares.details + 2 * shares.headings + 2 * shares.gaps <= height
    if height < 26:
        assert shares.rows + shares.processes + shares.details + 2 * shares.headings + 2 * shares.gaps >= height - 1


@pytest.mark.parametrize(
    ("count", "selected", "lines", "shown"),
    [
        (3, 0, 5, range(3)),
        (10, 0, 4, range(4)),
        (10, 5, 4, range(3, 7)),
        (10, 9, 4, range(6, 10)),
        (10, 5, 1, range(5, 6)),
        (10, 5, 0, range(5, 5)),
    ],
)
def test_visible_range(count: int, selected: int, lines: int, shown: range) -> None:
    assert list(visible_range(count, selected, lines)) == list(shown)
