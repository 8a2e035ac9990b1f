"""`oomph shrink onnx`."""

from __future__ import annotations

from .._options import Json, Side, Weights
from ._options import Data, Int8, Out, check_imgsz


def onnx(
    weights: Weights, data: Data, int8: Int8 = False, img: Side = 640, out: Out = None, json: Json = False
) -> None:
    """Export a detector to an ONNX file, which ONNX Runtime runs without torch."""
    from ...report import ConsoleProgress, ShrinkReport, emit  # noqa: PLC0415
    from ...shrink import ExportRequest, shrink_onnx  # noqa: PLC0415

    check_imgsz(img)
    progress = ConsoleProgress(quiet=json)
    result = shrink_onnx(ExportRequest(weights, data, img, int8, out), progress.log)
    emit(ShrinkReport(result), as_json=json)
