"""`oomph shrink onnx`: a detector as an ONNX file, in fp32 or int8."""

from __future__ import annotations

from .._variants import ShrinkResult
from ._export import Exporter, ExportRequest, Log, shrink_by_export
from ._onnx_export import export_onnx
from ._onnx_int8 import quantize_onnx

ONNX = Exporter("onnx", ".onnx", ("onnx", "onnxscript", "onnxruntime"), export_onnx, quantize_onnx)


def shrink_onnx(request: ExportRequest, log: Log = lambda _: None) -> ShrinkResult:
    """Export a detector to an ONNX file, run it, and measure it beside the original.

    The file is written only after it ran. An existing file of that name is replaced.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector, there is nothing to calibrate with, the folder isn't writable, or
            a package is missing.
        OomphError: the format doesn't have a layer, the exported file can't be run, or its outputs are others.
    """
    return shrink_by_export(ONNX, request, log)
