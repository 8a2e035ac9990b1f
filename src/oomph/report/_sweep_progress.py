"""A running sweep on the console: a bar over its cells, and a line for each running one."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from ..sweeps import CellProgress, CellResult
from ..units import format_number, format_size, format_time
from ._emit import Report, emit
from ._text import duration, printable
from .notebook import in_notebook


class SweepProgress:
    """Shows a sweep: bars on a terminal, and everywhere a line per finished cell; nothing if `quiet`."""

    def __init__(self, total: int, *, done: int = 0, quiet: bool = False) -> None:
        self._quiet = quiet
        out = sys.stderr if quiet else sys.stdout
        self._console = Console(file=out, highlight=False, soft_wrap=True, force_jupyter=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[details]}"),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal or in_notebook(),
        )
        self._done, self._total = done, total
        self._cells = self._bar.add_task("cells", total=total, completed=done, details=f"{done}/{total}")
        self._running: dict[str, TaskID] = {}

    def __enter__(self) -> SweepProgress:  # noqa: PYI034  Self is newer than Python 3.10
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def log(self, message: str) -> None:
        """Print a message."""
        if not self._quiet:
            self._bar.console.print(Text(printable(message)))
            self._console.file.flush()

    def show(self, report: Report) -> None:
        """Print a report."""
        if not self._quiet:
            emit(report, as_json=False)
            self._console.file.flush()

    def on_progress(self, progress: CellProgress) -> None:
        """Update the line of a running cell."""
        name = progress.cell.name
        sizes = [
            f"RAM {format_size(progress.host)}",
            *([] if not progress.gpu else [f"GPU {format_size(progress.gpu)}"]),
        ]
        details = "  ".join([format_time(progress.seconds), *sizes])
        if name not in self._running:
            self._running[name] = self._bar.add_task(printable(name), total=None, details=details)
        if progress.fraction is not None:
            self._bar.update(self._running[name], total=1.0, completed=progress.fraction)
        self._bar.update(self._running[name], details=details)

    def on_result(self, result: CellResult) -> None:
        """Print the result of a cell and remove its line."""
        task = self._running.pop(result.cell.name, None)
        if task is not None:
            self._bar.remove_task(task)
        self._done += 1
        self._bar.update(self._cells, completed=self._done, details=f"{self._done}/{self._total}")
        self.log(f"[{self._done}/{self._total}] {result.cell.name}: {_outcome(result)}")


def _outcome(result: CellResult) -> str:
    if not result.is_done:
        return f"{result.status.value}: {result.why}"
    parts = [
        *(f"{name} {format_number(value)}" for name, value in result.metrics.items()),
        *([] if result.memory is None else [format_size(result.memory)]),
        *([] if result.seconds is None else [duration(result.seconds)]),
    ]
    return ", ".join(parts)
