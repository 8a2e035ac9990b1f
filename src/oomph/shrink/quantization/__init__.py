"""Quantization: any module by torchao or ONNX Runtime, detectors with or without quantization-aware training."""

from ._aware import PreparedModel, finish_qat, prepare_qat
from ._detector import quantize_detector
from ._linear import QuantizedModel, load_quantized, quantize, save_quantized
from ._request import QAT_HYPERPARAMETERS, QUANTIZE_FILE, QuantizeRequest
from ._static import Int8File, quantize_to_onnx

__all__ = [
    "QAT_HYPERPARAMETERS",
    "QUANTIZE_FILE",
    "Int8File",
    "PreparedModel",
    "QuantizeRequest",
    "QuantizedModel",
    "finish_qat",
    "load_quantized",
    "prepare_qat",
    "quantize",
    "quantize_detector",
    "quantize_to_onnx",
    "save_quantized",
]
