"""`oomph explain`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ._options import Json


def explain(
    log: Annotated[
        str,
        typer.Argument(metavar="LOG|RECORD", help="A training log, a traceback or a Record; - reads standard input."),
    ],
    json: Json = False,
) -> None:
    """Explain what happened to a run, why, and what to do, from its log, traceback or Record.

    Recognizes the messages of torch, CUDA, cuDNN, the kernel, schedulers and loaders when memory runs out, and common
    errors that are not about memory.
    """
    from ..monitor import explain as explain_source  # noqa: PLC0415
    from ..monitor import explain_stream  # noqa: PLC0415
    from ..report import ExplainReport, emit  # noqa: PLC0415

    explanation = explain_stream(sys.stdin.buffer, "standard input") if log == "-" else explain_source(Path(log))
    emit(ExplainReport(explanation), as_json=json)
