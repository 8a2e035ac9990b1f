"""`oomph shrink executorch`: a detector as an ExecuTorch program, in fp32 or int8."""

from __future__ import annotations

from .._variants import ShrinkResult
from ._executorch_export import export_executorch
from ._executorch_int8 import quantize_executorch
from ._export import Exporter, ExportRequest, Log, shrink_by_export

EXECUTORCH = Exporter("executorch", ".pte", ("executorch", "torchao"), export_executorch, quantize_executorch)


def shrink_executorch(request: ExportRequest, log: Log = lambda _: None) -> ShrinkResult:
    """Export a detector to an ExecuTorch program, run it, and measure it beside the original.

    The file is written only after it ran. An existing file of that name is replaced.

    Raises:
        MissingFile: a file doesn't exist.
        UsageError: the weights aren't a detector, there is nothing to calibrate with, the folder isn't writable, or
            a package is missing.
        OomphError: the format doesn't have a layer, the exported file can't be run, or its outputs are others.
    """
    return shrink_by_export(EXECUTORCH, request, log)
