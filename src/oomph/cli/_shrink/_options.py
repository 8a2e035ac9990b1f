"""Options that several methods of `oomph shrink` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ...errors import UsageError

_MIN_IMGSZ = 32  # the largest stride

Data = Annotated[
    Path,
    typer.Option(metavar="YAML", help="The dataset: mAP is measured on val, int8 is calibrated on train."),
]
Int8 = Annotated[bool, typer.Option("--int8", help="Quantize to 8-bit integers.")]
Out = Annotated[
    Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
    typer.Option(metavar="FILE", help="The file to write.", show_default="next to the weights"),
]


def check_imgsz(imgsz: int) -> None:
    """Raise if an image size is too small for a detector.

    Raises:
        UsageError: it is smaller than the largest stride.
    """
    if imgsz < _MIN_IMGSZ:
        raise UsageError(f"the image size is {imgsz}", f"use at least {_MIN_IMGSZ}")
