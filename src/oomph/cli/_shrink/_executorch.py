"""`oomph shrink executorch`."""

from __future__ import annotations

from .._options import Json, Side, Weights
from ._options import Data, Int8, Out, check_imgsz


def executorch(
    weights: Weights, data: Data, int8: Int8 = False, img: Side = 640, out: Out = None, json: Json = False
) -> None:
    """Export a detector to an ExecuTorch program (.pte) of the XNNPACK backend, for phones and small devices."""
    from ...report import ConsoleProgress, ShrinkReport, emit  # noqa: PLC0415
    from ...shrink import ExportRequest, shrink_executorch  # noqa: PLC0415

    check_imgsz(img)
    progress = ConsoleProgress(quiet=json)
    result = shrink_executorch(ExportRequest(weights, data, img, int8, out), progress.log)
    emit(ShrinkReport(result), as_json=json)
