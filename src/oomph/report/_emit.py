"""Where a report goes: a terminal gets tables and colour, a pipe or a notebook plain text, a program JSON."""

from __future__ import annotations

import io
import sys
from typing import Any, Protocol, TextIO

from rich.console import Console, RenderableType

from .. import document

_NO_WIDTH = 10**9  # as wide as it likes


class Report(Protocol):
    """Something that can be told to people and to programs."""

    def document(self) -> dict[str, Any]:
        """All of it, for a program."""
        ...

    def render(self, *, plain: bool) -> RenderableType:
        """What a person reads; plain means without boxes, for a pipe."""
        ...


def emit(report: Report, *, as_json: bool, stream: TextIO | None = None) -> None:
    """Write a report to standard output: as one JSON document, or as text."""
    out = stream or sys.stdout
    if as_json:
        out.write(document.dumps(report.document()))
        return
    console = Console(file=out, highlight=False, force_jupyter=False)
    if console.is_terminal:
        # Commands are longer than some terminals are wide, and a command that was cut or broken can't be copied.
        console.print(report.render(plain=False), crop=False)
    else:
        out.write(_plain(report))


def _plain(report: Report) -> str:
    """The text for a pipe: no colour, nothing wrapped or cut, no blanks at the ends of lines."""
    story = report.render(plain=True)
    console = Console(file=io.StringIO(), highlight=False, force_jupyter=False, color_system=None)
    console.width = console.measure(story, options=console.options.update(width=_NO_WIDTH)).maximum
    with console.capture() as captured:
        console.print(story)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())
