"""All plots of a validation, by file name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..metrics import ImageResult, Scores, confidence_curves, confusion_matrix
from ._confusion_plot import confusion_plot
from ._curve_plots import f1_plot, precision_plot, precision_recall_plot, recall_plot


def validation_plots(
    results: Sequence[ImageResult], scores: Scores, names: Sequence[str]
) -> dict[str, Callable[[], bytes]]:
    """Return for each file name a function that draws it; the functions keep curves and counts, no predictions."""
    curves, matrix = confidence_curves(results, len(names)), confusion_matrix(results, len(names))
    return {
        "PR_curve.png": partial(precision_recall_plot, scores),
        "F1_curve.png": partial(f1_plot, curves, names),
        "P_curve.png": partial(precision_plot, curves, names),
        "R_curve.png": partial(recall_plot, curves, names),
        "confusion_matrix.png": partial(confusion_plot, matrix, names),
    }
