"""`oomph shrink tflite`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Optional

import typer

from .._options import Json
from ._options import Out


class Precision(str, enum.Enum):
    """The precisions of a TFLite file."""

    dynamic = "dynamic"
    float16 = "float16"
    int8 = "int8"


class ValueRange(str, enum.Enum):
    """The values of black and white."""

    bytes = "0..255"
    unit = "0..1"
    signed = "-1..1"


_RANGES = {ValueRange.bytes: (0.0, 255.0), ValueRange.unit: (0.0, 1.0), ValueRange.signed: (-1.0, 1.0)}


def tflite(
    weights: Annotated[Path, typer.Option(metavar="FILE", help="The .keras file of a classifier of images.")],
    data: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The images: train/ and val/, each with a folder per class.")
    ],
    precision: Annotated[
        Precision, typer.Option(help="8-bit weights, 16-bit weights, or weights and activations in 8 bits.")
    ] = Precision.dynamic,
    img: Annotated[
        Optional[int],  # noqa: UP045  typer on Python 3.10 reads it at run time
        typer.Option(min=1, help="Image size, for a model that accepts any.", show_default="that of the model"),
    ] = None,
    value_range: Annotated[
        ValueRange, typer.Option(help="Pixel values that the model was trained with.")
    ] = ValueRange.bytes,
    out: Out = None,
    json: Json = False,
) -> None:
    """Convert a Keras model to a TFLite file, which LiteRT runs without TensorFlow."""
    from ...report import ConsoleProgress, ShrinkReport, emit  # noqa: PLC0415
    from ...shrink import TfliteRequest, shrink_tflite  # noqa: PLC0415

    progress = ConsoleProgress(quiet=json)
    request = TfliteRequest(weights, data, precision.value, img, _RANGES[value_range], out)
    emit(ShrinkReport(shrink_tflite(request, progress.log)), as_json=json)
