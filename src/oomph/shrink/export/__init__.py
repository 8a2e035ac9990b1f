"""Detectors as files of other runtimes."""

from ._onnx import OnnxRequest, shrink_onnx

__all__ = ["OnnxRequest", "shrink_onnx"]
