"""Detection metrics."""

from ._image_result import ImageResult, read_results, write_results
from ._scores import ClassScore, Scores, has_metrics, score

__all__ = [
    "ClassScore",
    "ImageResult",
    "Scores",
    "has_metrics",
    "read_results",
    "score",
    "write_results",
]
