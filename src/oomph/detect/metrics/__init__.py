"""Detection metrics."""

from ._confidence_curves import ConfidenceCurves, confidence_curves
from ._confusion import CONFUSION_CONFIDENCE, CONFUSION_IOU, confusion_matrix, per_true_class
from ._image_result import ImageResult, read_results, write_results
from ._scores import ClassScore, Scores, has_metrics, score

__all__ = [
    "CONFUSION_CONFIDENCE",
    "CONFUSION_IOU",
    "ClassScore",
    "ConfidenceCurves",
    "ImageResult",
    "Scores",
    "confidence_curves",
    "confusion_matrix",
    "has_metrics",
    "per_true_class",
    "read_results",
    "score",
    "write_results",
]
