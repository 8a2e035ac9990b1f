"""Where a report goes: a terminal gets tables and colour, a pipe or a notebook plain text, a program JSON."""

from __future__ import annotations

import json
import sys
from typing import Any, Protocol, TextIO

from rich.console import Console, RenderableType

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
        out.write(json.dumps(report.document(), indent=2, ensure_ascii=False) + "\n")
        return
    console = terminal(out)
    console.print(report.render(plain=not console.is_terminal))


def terminal(stream: TextIO) -> Console:
    """A console that leaves notebooks alone and never wraps what goes into a pipe."""
    console = Console(file=stream, highlight=False, force_jupyter=False)
    return console if console.is_terminal else Console(
        file=stream, highlight=False, force_jupyter=False, color_system=None, width=_PIPE_WIDTH
    )
