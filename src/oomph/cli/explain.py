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
        typer.Argument(
            metavar="LOG|RECORD", help="A training log, a pasted traceback or a Record; - reads standard input."
        ),
    ],
    json: Json = False,
) -> None:
    """Tell what happened to a run, why, and what to do, from its log, its traceback or its Record.

    Knows the words of torch, CUDA, cuDNN, the kernel, schedulers and loaders for memory running short, and says so when
    the trouble is something else, or nothing it knows.
    """
    from ..monitor import explain as explain_source  # noqa: PLC0415
    from ..monitor import explain_stream  # noqa: PLC0415
    from ..report import ExplainReport, emit  # noqa: PLC0415

    found = explain_stream(sys.stdin.buffer, "standard input") if log == "-" else explain_source(Path(log))
    emit(ExplainReport(found), as_json=json)
