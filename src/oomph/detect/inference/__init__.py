"""Detectors in use: validation on a split, scores of weights, objects in images."""

from ._config import Detector, InferenceConfig, load_detector
from ._detect_objects import DetectResult, ImageDetections, detect_objects
from ._validate_weights import validate_weights
from ._validation import results_by_image, run_unguarded, validate, validation_loader

__all__ = [
    "DetectResult",
    "Detector",
    "ImageDetections",
    "InferenceConfig",
    "detect_objects",
    "load_detector",
    "results_by_image",
    "run_unguarded",
    "validate",
    "validate_weights",
    "validation_loader",
]
