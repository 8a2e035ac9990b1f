"""`oomph report`."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Optional

import typer

from ._options import Json


def report(
    run: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of `oomph train`, or Records; several are compared."),
    ],
    out: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(
            "--out", "-o", metavar="FILE", help="Where to write the page.", show_default="report.html in the run folder"
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    json: Json = False,
) -> None:
    """Write one self-contained page about a run: memory, steps, problems, losses and pictures.

    The run may be finished, running or killed. The page needs no network and no server. With --json, the data is
    printed, and the page is written only if -o or --open is given.
    """
    from ..report import RunReport, default_page, emit, write_page  # noqa: PLC0415

    result = RunReport.of(run)
    if out is not None or open_page or not json:
        result = write_page(result, out or default_page(run), replace=out is not None)
    emit(result, as_json=json)
    if open_page and result.page is not None:
        webbrowser.open(result.page.absolute().as_uri())
