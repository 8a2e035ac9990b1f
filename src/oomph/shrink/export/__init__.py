"""Detectors as files of other runtimes."""

from ._executorch import shrink_executorch
from ._export import ExportRequest, Quantization, calibration_images, check_target, read_detector, write_file
from ._litert import shrink_litert
from ._onnx import ONNX, shrink_onnx
from ._onnx_int8 import quantize_static
from ._quiet import quiet

__all__ = [
    "ONNX",
    "ExportRequest",
    "Quantization",
    "calibration_images",
    "check_target",
    "quantize_static",
    "quiet",
    "read_detector",
    "shrink_executorch",
    "shrink_litert",
    "shrink_onnx",
    "write_file",
]
