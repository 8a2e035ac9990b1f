"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to standard output and nothing else.")]
Device = Annotated[
    Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
    typer.Option(metavar="cpu|N", help="Where to run.", show_default="the first GPU, or cpu"),
]
Side = Annotated[int, typer.Option("--img", "--imgsz", "--img-size", help="Side of the images.")]
Weights = Annotated[Path, typer.Option(metavar="FILE", help="Weights of a YOLOv5, the reference's or ours.")]


def check_shares(sure: float, overlap: float) -> None:
    """Refuse limits that are no shares.

    Raises:
        UsageError: one of them isn't between 0 and 1.
    """
    for name, value in (("--conf-thres", sure), ("--iou-thres", overlap)):
        if not 0 <= value <= 1:
            raise UsageError(f"{name} is {value}", "it must be between 0 and 1")
