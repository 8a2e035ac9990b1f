from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from textual.pilot import Pilot

from oomph.report import ScreenExit
from oomph.report.watch._app import WatchApp
from oomph.report.watch._screen import draw_screen

from .fake_watcher import FakeMachine
from .readings import process

Script = Callable[[WatchApp, Pilot[ScreenExit]], Awaitable[None]]


def drive(app: WatchApp, script: Script, size: tuple[int, int] = (110, 30)) -> ScreenExit | None:
    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: bool(text(app)))
            await script(app, pilot)
            await pilot.pause()

    asyncio.run(run())
    return app.return_value


async def until(pilot: Pilot[ScreenExit], condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await pilot.pause(0.01)
    raise AssertionError(text(pilot.app))  # type: ignore[arg-type]


def text(app: WatchApp) -> str:
    """What is drawn at the size of the terminal."""
    return app.draw(app.size.width, app.size.height).plain


def line_of(app: WatchApp, start: str) -> str:
    return next((line for line in text(app).split("\n") if line.lstrip().startswith(start)), "")


@pytest.mark.medium
def test_arrows_select_a_process_and_show_its_details() -> None:
    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        assert line_of(app, ">9")
        await pilot.press("down")
        assert line_of(app, ">8")
        await until(pilot, lambda: "python 8, RAM 1.1 GiB in 2 processes, GPU 0 8 GiB" in text(app))
        await until(pilot, lambda: "Record run.jsonl: step 8" in text(app))
        await pilot.press("down", "down", "down")
        assert line_of(app, ">7")
        assert "Record" not in text(app)
        await pilot.press("home")
        assert line_of(app, ">9")
        await pilot.press("end", "up")
        assert line_of(app, ">8")
        await pilot.press("q")

    machine = FakeMachine(9, 8, 7)
    result = drive(WatchApp(None, 0.05, 0, machine.open), script)
    assert result is not None
    assert (result.has_ended, result.signal, result.error) == (False, None, None)
    assert machine.closed == [None]


@pytest.mark.medium
def test_enter_opens_a_process_and_escape_goes_back() -> None:
    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await pilot.press("down", "enter")
        await until(pilot, lambda: text(app).startswith("Process 8 (python)"))
        assert line_of(app, "process tree")
        assert line_of(app, ">8")
        assert line_of(app, "80 ")  # its child
        assert "Esc back" in text(app)
        await pilot.press("escape")
        await until(pilot, lambda: text(app).startswith("This machine"))
        assert line_of(app, ">8")  # the process that was opened
        await until(pilot, lambda: "Record run.jsonl: step 8" in text(app))
        await pilot.press("escape")  # there is nothing before it
        assert text(app).startswith("This machine")
        await pilot.press("ctrl+c")

    machine = FakeMachine(9, 8)
    assert drive(WatchApp(None, 0.05, 0, machine.open), script) is not None
    assert machine.opened == [None, 8, None]


@pytest.mark.medium
def test_an_opened_process_that_ends_leads_back_with_a_notice() -> None:
    machine = FakeMachine(9, 8)

    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: text(app).startswith("Process 9"))
        del machine.processes[9]
        await until(pilot, lambda: "This machine" in text(app) and "Process 9 has ended." in text(app))
        await until(pilot, lambda: bool(line_of(app, ">8")))
        await pilot.press("q")

    assert drive(WatchApp(None, 0.05, 0, machine.open), script) is not None


@pytest.mark.medium
def test_a_selected_process_that_ends_passes_the_selection_on() -> None:
    machine = FakeMachine(9, 8, 7)

    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await pilot.press("down")
        del machine.processes[8]
        await until(pilot, lambda: bool(line_of(app, ">7")))
        machine.processes.clear()
        await until(pilot, lambda: "No process looks like training" in text(app))
        await pilot.press("up", "down", "enter", "q")

    assert drive(WatchApp(None, 0.05, 0, machine.open), script) is not None


def test_a_process_that_has_ended_before_it_is_opened_gives_a_notice() -> None:
    machine = FakeMachine(9)

    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: "there is no process 9" in text(app))
        assert text(app).startswith("This machine")
        await pilot.press("q")

    machine.ended_meanwhile.add(9)
    assert drive(WatchApp(None, 60, 0, machine.open), script) is not None


def test_the_watched_process_ends() -> None:
    machine = FakeMachine(8)

    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        machine.processes.clear()
        await until(pilot, lambda: app.return_value is not None)

    result = drive(WatchApp(8, 0.02, 0, machine.open), script)
    assert result is not None
    assert result.has_ended
    assert "process tree 1.1 GiB" in result.last_line


@pytest.mark.medium
def test_the_watched_process_ends_while_a_child_is_shown() -> None:
    machine = FakeMachine(8)
    machine.processes[80] = process(80)

    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await pilot.press("down", "enter")
        await until(pilot, lambda: text(app).startswith("Process 80"))
        machine.processes.clear()
        await until(pilot, lambda: app.return_value is not None)

    result = drive(WatchApp(8, 0.02, 0, machine.open), script)
    assert result is not None
    assert result.has_ended
    assert "process tree 1.1 GiB" in result.last_line


@pytest.mark.medium
def test_all_opened_processes_end_at_once() -> None:
    machine = FakeMachine(8, 6)
    machine.processes[80] = process(80)

    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await pilot.press("enter")
        await until(pilot, lambda: text(app).startswith("Process 8 "))
        await pilot.press("down", "enter")
        await until(pilot, lambda: text(app).startswith("Process 80"))
        del machine.processes[8], machine.processes[80]
        await until(pilot, lambda: text(app).startswith("This machine") and bool(line_of(app, ">6")))
        await until(pilot, lambda: "Record run.jsonl: step 6" in text(app))
        await pilot.press("q")

    assert drive(WatchApp(None, 0.02, 0, machine.open), script) is not None


def test_count_ends_the_screen() -> None:
    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await until(pilot, lambda: app.return_value is not None)

    result = drive(WatchApp(None, 0.02, 3, FakeMachine(8).open), script)
    assert result is not None
    assert result.is_complete


@pytest.mark.parametrize("size", [(40, 10), (200, 60), (5, 1), (80, 24)])
def test_resize_draws_at_the_new_size(size: tuple[int, int]) -> None:
    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await pilot.resize_terminal(*size)
        await pilot.pause(0.05)
        drawn = [[segment.text for segment in strip] for strip in app.screen._compositor.render_strips()]
        assert len(drawn) == size[1]
        assert "".join(drawn[0]).startswith("This")
        assert all(len("".join(line)) == size[0] for line in drawn)
        await pilot.press("q")

    assert drive(WatchApp(None, 60, 0, FakeMachine(8).open), script) is not None


def test_an_error_in_a_reading_closes_the_screen() -> None:
    machine = FakeMachine(8)

    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        machine.error = ZeroDivisionError("broken")
        await until(pilot, lambda: app.return_value is not None)

    result = drive(WatchApp(None, 0.02, 0, machine.open), script)
    assert result is not None
    assert result.error is machine.error


def test_an_error_in_the_drawing_closes_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def broken(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) > 5:
            raise ZeroDivisionError
        return draw_screen(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("oomph.report.watch._app.draw_screen", broken)

    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await until(pilot, lambda: app.return_value is not None)

    result = drive(WatchApp(None, 0.02, 0, FakeMachine(8).open), script)
    assert result is not None
    assert isinstance(result.error, ZeroDivisionError)


def test_the_screen_can_be_exported_as_svg() -> None:
    pictures = []

    async def script(app: WatchApp, pilot: Pilot[ScreenExit]) -> None:
        await pilot.pause(0.1)
        pictures.append(app.export_screenshot(title="oomph watch"))
        await pilot.press("q")

    drive(WatchApp(None, 60, 0, FakeMachine(8).open), script)
    assert pictures[0].startswith("<svg")
    assert "machine" in pictures[0]
