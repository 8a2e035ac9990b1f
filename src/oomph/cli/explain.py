"""`oomph explain`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from ._options import Json

_STDIN = "-"


def explain(
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG|RECORD",
            help="A training log, a traceback or a Record; - reads standard input, and so does a pipe.",
            show_default=False,
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Explain what happened to a run, why, and what to do, from its log, traceback or Record.

    Recognizes the messages of torch, CUDA, cuDNN, the kernel, schedulers and loaders when memory runs out, and common
    errors that are not about memory.
    """
    from ..monitor import explain as explain_source  # noqa: PLC0415
    from ..monitor import explain_stream  # noqa: PLC0415
    from ..report import ExplainReport, emit  # noqa: PLC0415

    if not log and sys.stdin.isatty():
        raise UsageError("no log was given", "name a file, for example: oomph explain train.log")
    # Whoever forgets the dash behind a pipe would lose the output of the run.
    is_piped = log in {"", _STDIN}
    explanation = explain_stream(sys.stdin.buffer, "standard input") if is_piped else explain_source(Path(log))
    emit(ExplainReport(explanation), as_json=json)
