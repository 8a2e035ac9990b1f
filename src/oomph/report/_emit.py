"""Where a report goes: a terminal gets tables and colour, a pipe or a notebook plain text, a program JSON."""

from __future__ import annotations

import io
import sys
from typing import Any, Protocol, TextIO

from rich.console import Console, RenderableType

from .. import document

# Wide enough that nothing a pipe gets is ever wrapped or cut.
_PIPE_WIDTH = 1000


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
        console.print(report.render(plain=False))
    else:
        out.write(_plain(report))


def _plain(report: Report) -> str:
    """The text for a pipe: no colour, nothing wrapped or cut, no blanks at the ends of lines."""
    console = Console(file=io.StringIO(), highlight=False, force_jupyter=False, color_system=None, width=_PIPE_WIDTH)
    with console.capture() as captured:
        console.print(report.render(plain=True))
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())
