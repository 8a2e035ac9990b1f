"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import UsageError

Json = Annotated[bool, typer.Option("--json", help="Write one JSON document to standard output and nothing else.")]
Device = Annotated[
    Optional[str],  # noqa: UP045  typer on Python 3.10 reads it at run time
    typer.Option(metavar="cpu|N", help="The device to run on.", show_default="the first GPU, or cpu"),
]
Side = Annotated[int, typer.Option("--img", "--imgsz", "--img-size", help="Image size, in pixels.")]
Weights = Annotated[Path, typer.Option(metavar="FILE", help="Weights of a YOLOv5 model, from YOLOv5 or oomph.")]


def check_shares(confidence: float, iou: float) -> None:
    """Raise if a threshold is outside 0 to 1.

    Raises:
        UsageError: `--conf-thres` or `--iou-thres` is not between 0 and 1.
    """
    for name, value in (("--conf-thres", confidence), ("--iou-thres", iou)):
        if not 0 <= value <= 1:
            raise UsageError(f"{name} is {value}", "it must be between 0 and 1")
