"""`oomph shrink litert`: a detector as a LiteRT file, in fp32 or int8."""

from __future__ import annotations

from .._variants import ShrinkResult
from ._export import Exporter, ExportRequest, Log, shrink_by_export
from ._litert_export import export_litert
from ._litert_int8 import quantize_litert

LITERT = Exporter(
    "litert", ".tflite", ("ai_edge_litert", "ai_edge_quantizer", "litert_torch"), export_litert, quantize_litert
)


def shrink_litert(request: ExportRequest, log: Log = lambda _: None) -> ShrinkResult:
    """Export a detector to a LiteRT file, run it, and measure it beside the original.

    The file is written only after it ran. An existing file of that name is replaced.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector, there is nothing to calibrate with, the folder isn't writable, or
            a package is missing.
        OomphError: the format doesn't have a layer, the exported file can't be run, or its outputs are others.
    """
    return shrink_by_export(LITERT, request, log)
