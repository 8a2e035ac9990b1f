"""Detectors as files of other runtimes."""

from ._onnx import OnnxRequest, calibration_images, check_onnx_target, read_detector, shrink_onnx, write_file
from ._onnx_export import Quiet, export_onnx, metadata_of
from ._onnx_int8 import quantize_onnx, quantize_static

__all__ = [
    "OnnxRequest",
    "Quiet",
    "calibration_images",
    "check_onnx_target",
    "export_onnx",
    "metadata_of",
    "quantize_onnx",
    "quantize_static",
    "read_detector",
    "shrink_onnx",
    "write_file",
]
