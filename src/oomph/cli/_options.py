"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to standard output and nothing else.")]
Device = Annotated[
    Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
    typer.Option(metavar="cpu|N", help="Where to run.", show_default="the first GPU, or cpu"),
]
Side = Annotated[int, typer.Option("--img", "--imgsz", "--img-size", help="Side of the images.")]
Weights = Annotated[Path, typer.Option(metavar="FILE", help="Weights of a YOLOv5, the reference's or ours.")]
