"""ONNX files, run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ._exported_file import ExportedFile

_ERRORS_ONLY = 3  # of ONNX Runtime's log levels


def open_onnx(path: Path, threads: int | None) -> ExportedFile:
    """Load an ONNX file."""
    import onnxruntime  # noqa: PLC0415  an extra

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    if threads is not None:
        options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(pixels: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        outputs: list[NDArray[np.float32]] = session.run(None, {name: pixels})
        return outputs

    channels = tuple(output.shape[1] if len(output.shape) > 1 else 0 for output in session.get_outputs())
    return ExportedFile(run, session.get_modelmeta().custom_metadata_map, channels)
