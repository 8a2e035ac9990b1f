"""Detectors in use: validation on a split, scores of weights, objects in images."""

from ._config import Detector, InferenceConfig, load_detector
from ._detect_objects import DetectResult, ImageDetections, detect_objects
from ._onnx_detector import EXPORT_EXTRA, is_onnx
from ._validate_weights import validate_weights
from ._validation import results_by_image, run_unguarded, validate, validation_loader

__all__ = [
    "EXPORT_EXTRA",
    "DetectResult",
    "Detector",
    "ImageDetections",
    "InferenceConfig",
    "detect_objects",
    "is_onnx",
    "load_detector",
    "results_by_image",
    "run_unguarded",
    "validate",
    "validate_weights",
    "validation_loader",
]
