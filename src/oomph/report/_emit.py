"""Output of reports: tables with color on a terminal, plain text in a pipe or notebook, JSON for programs."""

from __future__ import annotations

import io
import sys
from typing import Any, Protocol, TextIO

from rich.console import Console, RenderableType

from .. import document

_UNLIMITED_WIDTH = 10**9


class Report(Protocol):
    """A result that can be shown to users and to programs."""

    def document(self) -> dict[str, Any]:
        """Return the whole result as a JSON document."""
        ...

    def render(self, *, plain: bool) -> RenderableType:
        """Render the result for users; `plain` means without frames, for a pipe."""
        ...


def emit(report: Report, *, as_json: bool, stream: TextIO | None = None) -> None:
    """Write a report to standard output, as one JSON document or as text."""
    out = stream or sys.stdout
    if as_json:
        out.write(document.dumps(report.document()))
        return
    # Names in square brackets or between colons are text, not markup or emoji of rich.
    console = Console(file=out, highlight=False, force_jupyter=False, markup=False, emoji=False)
    if console.is_terminal:
        # A command that is longer than the terminal is wide must not be cropped: users copy it.
        console.print(report.render(plain=False), crop=False)
    else:
        out.write(_plain_text(report))


def _plain_text(report: Report) -> str:
    """Render without color, wrapping, cropping and trailing spaces."""
    renderable = report.render(plain=True)
    console = Console(
        file=io.StringIO(), highlight=False, force_jupyter=False, color_system=None, markup=False, emoji=False
    )
    console.width = console.measure(renderable, options=console.options.update(width=_UNLIMITED_WIDTH)).maximum
    with console.capture() as captured:
        console.print(renderable)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())
