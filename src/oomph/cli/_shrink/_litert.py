"""`oomph shrink litert`."""

from __future__ import annotations

from .._options import Json, Side, Weights
from ._options import Data, Int8, Out, check_imgsz


def litert(
    weights: Weights, data: Data, int8: Int8 = False, img: Side = 640, out: Out = None, json: Json = False
) -> None:
    """Export a detector to a LiteRT file (.tflite), formerly TensorFlow Lite, for phones and small devices."""
    from ...report import ConsoleProgress, ShrinkReport, emit  # noqa: PLC0415
    from ...shrink import ExportRequest, shrink_litert  # noqa: PLC0415

    check_imgsz(img)
    progress = ConsoleProgress(quiet=json)
    result = shrink_litert(ExportRequest(weights, data, img, int8, out), progress.log)
    emit(ShrinkReport(result), as_json=json)
