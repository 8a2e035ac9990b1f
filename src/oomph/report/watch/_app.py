"""The textual app of `oomph watch`: keys, selection and signals; `_screen.py` draws."""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import signal
from collections.abc import Callable, Iterator
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widget import Widget

from ...errors import OomphError
from ...monitor import Reading, RunProgress, Watcher
from ._lines import WatchLines
from ._reading_thread import (
    CountReached,
    ReadingFailed,
    ReadingThread,
    ReadsMemory,
    SelectedProgress,
    Update,
)
from ._run import ScreenExit
from ._screen import Page, add_reading, draw_screen, new_history

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_PAGE_LINES = 10


class UpdateMessage(Message):
    """Carries an update from the thread that takes readings."""

    def __init__(self, update: Update) -> None:
        super().__init__()
        self.update = update


class ScreenView(Widget):
    """Draws the page at the size of the terminal."""

    DEFAULT_CSS = "ScreenView { width: 1fr; height: 1fr; }"

    def render(self) -> Text:
        """Draw the page; textual calls this after each refresh and resize."""
        app = self.app
        return app.draw(self.size.width, self.size.height) if isinstance(app, WatchApp) else Text()


class WatchApp(App[ScreenExit]):
    """The screen: shows readings until it is closed.

    Args:
        pid: The process to watch; the whole machine if None.
        interval: Seconds between samples.
        count: Number of samples; 0 means no limit.
        open_watcher: Opens the watcher of a process, or of the machine if None.

    Raises:
        UsageError: The process doesn't exist.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "close", "quit"),
        Binding("ctrl+c", "close", "quit", priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", priority=True),
        Binding("up,k", "move(-1)", "select"),
        Binding("down,j", "move(1)", "select"),
        Binding("pageup", f"move(-{_PAGE_LINES})", "select"),
        Binding("pagedown", f"move({_PAGE_LINES})", "select"),
        Binding("home", "move(-1000000)", "first"),
        Binding("end", "move(1000000)", "last"),
        Binding("enter,right", "open", "open"),
        Binding("escape,left,backspace", "go_back", "back"),
    ]

    def __init__(
        self,
        pid: int | None,
        interval: float,
        count: int,
        open_watcher: Callable[[int | None], ReadsMemory] = Watcher,
    ) -> None:
        # The terminal's own colors, which suit its background. textual removes them if NO_COLOR is set.
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self._interval = interval
        self._page_file = platform.system() == "Windows"
        self._lines, self._last_line = WatchLines(page_file=self._page_file), ""
        self._history = new_history(interval)
        self._targets: list[int | None] = [pid]
        self._reading: Reading | None = None
        self._selected: int | None = None
        self._progress: RunProgress | None = None
        self._notice = ""
        self._signal_number: int | None = None
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._readings = ReadingThread(open_watcher, pid, interval, count, self._publish)

    def show(self) -> ScreenExit:
        """Show the screen until it is closed, and restore the terminal."""
        with self._handle_signals(), _terminal_size_from_the_terminal():
            result = self.run(mouse=False)
        # textual has printed the traceback of an error of its own.
        return result or ScreenExit(self._last_line, error=SystemExit(self.return_code or 1))

    def compose(self) -> ComposeResult:
        """Return the only widget."""
        yield ScreenView()

    def on_mount(self) -> None:
        """Begin to take readings."""
        self._event_loop = asyncio.get_running_loop()
        if self._signal_number is not None:
            self._close_by_signal()
        self._readings.start()

    def on_unmount(self) -> None:
        """Stop taking readings."""
        self._readings.stop()

    def draw(self, width: int, height: int) -> Text:
        """Draw the current page at a size."""
        if self._reading is None:
            return Text()
        page = Page(
            reading=self._reading,
            history=self._history,
            selected=self._selected,
            progress=self._progress,
            interval=self._interval,
            notice=self._notice,
            can_go_back=len(self._targets) > 1,
            page_file=self._page_file,
        )
        try:
            return draw_screen(page, width, height)
        except Exception as error:  # noqa: BLE001  shown after the terminal is restored
            self.exit(ScreenExit(self._last_line, error=error))
            return Text()

    def action_close(self) -> None:
        """Close the screen."""
        self.exit(ScreenExit(self._last_line))

    def action_move(self, lines: int) -> None:
        """Move the selection."""
        if self._reading is None or not self._reading.processes:
            return
        pids = [use.pid for use in self._reading.processes]
        position = pids.index(self._selected) + lines if self._selected in pids else 0
        self._notice = ""
        self._select(pids[max(min(position, len(pids) - 1), 0)])

    def action_open(self) -> None:
        """Show the selected process and its descendants."""
        if self._selected is not None and self._selected != self._targets[-1]:
            self._targets.append(self._selected)
            self._show_target()

    def action_go_back(self) -> None:
        """Go back to the page before."""
        if len(self._targets) > 1:
            left = self._targets.pop()
            self._show_target()
            self._select(left)  # the process that was opened

    @on(UpdateMessage)
    def _apply(self, message: UpdateMessage) -> None:
        update = message.update
        if isinstance(update, Reading):
            self._apply_reading(update)
        elif isinstance(update, SelectedProgress):
            self._progress = update.progress if update.pid == self._selected else None
        elif isinstance(update, CountReached):
            self.exit(ScreenExit(self._last_line, is_complete=True))
        elif isinstance(update, ReadingFailed):
            self._apply_failure(update.error)
        elif update.pid == self._targets[-1]:
            self._leave_page(f"Process {update.pid} has ended.")
        self.query_one(ScreenView).refresh()

    def _apply_reading(self, reading: Reading) -> None:
        add_reading(self._history, reading)
        if reading.root == self._targets[0]:
            self._last_line = self._lines.add(reading.time, reading.sample)
        if reading.root != self._targets[-1]:
            return  # it was taken before the page changed
        previous, self._reading = self._reading, reading
        pids = [use.pid for use in reading.processes]
        if self._selected not in pids:
            self._select(_neighbor(pids, previous, self._selected))

    def _apply_failure(self, error: Exception) -> None:
        if isinstance(error, OomphError):
            self._leave_page(f"{error}.")  # the process of this page has ended before it could be read
        else:
            self.exit(ScreenExit(self._last_line, error=error))

    def _leave_page(self, notice: str) -> None:
        """Go back because the process of this page has ended; the end of the first page is the end of the screen."""
        if len(self._targets) == 1:
            self.exit(ScreenExit(self._last_line, has_ended=True))
            return
        self.action_go_back()
        self._notice = notice

    def _show_target(self) -> None:
        self._notice, self._progress = "", None
        self._selected = self._targets[-1]
        self._readings.show(self._targets[-1])

    def _select(self, pid: int | None) -> None:
        self._selected, self._progress = pid, None
        self._readings.select(pid)
        self.query_one(ScreenView).refresh()

    def _publish(self, update: Update) -> None:
        """Pass an update from the thread to the event loop."""
        self.post_message(UpdateMessage(update))

    @contextlib.contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """Close the screen on a signal, so that the terminal is restored."""

        def handle(number: int, frame: object) -> None:
            del frame
            self._signal_number = number
            if self._event_loop is not None:
                self._event_loop.call_soon_threadsafe(self._close_by_signal)

        numbers = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
        previous = {number: signal.signal(number, handle) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _close_by_signal(self) -> None:
        self.exit(ScreenExit(self._last_line, signal=self._signal_number))


@contextlib.contextmanager
def _terminal_size_from_the_terminal() -> Iterator[None]:
    """Hide COLUMNS and LINES, which some shells export: with them, textual would not notice a resize."""
    names = ("COLUMNS", "LINES") if _knows_its_size() else ()
    hidden = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _knows_its_size() -> bool:
    try:
        return os.get_terminal_size().columns > 0
    except OSError:
        return False


def _neighbor(pids: list[int], previous: Reading | None, selected: int | None) -> int | None:
    """Return the process that is selected when the selected one has ended: the next one in the list."""
    if not pids:
        return None
    earlier = [use.pid for use in previous.processes] if previous is not None else []
    position = earlier.index(selected) if selected in earlier else 0
    return pids[min(position, len(pids) - 1)]
