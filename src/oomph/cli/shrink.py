"""`oomph shrink`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from ..errors import UsageError
from ._options import Json, Side, Weights

_MIN_IMGSZ = 32  # the largest stride


class Method(str, enum.Enum):
    """The ways to make a model smaller."""

    onnx = "onnx"


def shrink(
    method: Annotated[Method, typer.Argument(help="What to do: export to an ONNX file.", show_default=False)],
    weights: Weights,
    data: Annotated[Path, typer.Option(metavar="YAML", help="The dataset: mAP on val, calibration on train.")],
    int8: Annotated[bool, typer.Option("--int8", help="Quantize to 8-bit integers.")] = False,
    img: Side = 640,
    out: Annotated[
        Optional[Path],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(metavar="FILE", help="The file to write.", show_default="next to the weights"),
    ] = None,
    json: Json = False,
) -> None:
    """Make a trained detector smaller, and measure what that saves and costs."""
    from ..report import ConsoleProgress, ShrinkReport, emit  # noqa: PLC0415
    from ..shrink import OnnxRequest, shrink_onnx  # noqa: PLC0415

    if img < _MIN_IMGSZ:
        raise UsageError(f"the image size is {img}", f"use at least {_MIN_IMGSZ}")
    del method  # there is one so far
    progress = ConsoleProgress(quiet=json)
    result = shrink_onnx(OnnxRequest(weights, data, img, int8, out), progress.log)
    emit(ShrinkReport(result), as_json=json)
