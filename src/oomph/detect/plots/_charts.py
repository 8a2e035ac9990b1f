"""Charts of training and validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...charts import Chart, Line
from ..metrics import Scores

_RECALL_POINTS = 101
_MAX_CLASSES = 19  # with the mean of all classes, as many lines as a legend has space for


def precision_recall_chart(scores: Scores) -> Chart:
    """Return the precision-recall curves at IoU 0.5 of each class and of their mean."""
    classes = [item for item in scores.by_class if item.curve]
    recalls = tuple(float(value) for value in np.linspace(0, 1, _RECALL_POINTS))
    lines = [Line(f"{item.name} {item.map50 or 0:.3f}", recalls, item.curve) for item in classes[:_MAX_CLASSES]]
    if classes:
        mean = tuple(float(value) for value in np.mean([item.curve for item in classes], 0))
        lines.insert(0, Line(f"all {scores.map50:.3f}", recalls, mean))
    return Chart("precision and recall at IoU 0.5", "recall", "precision", tuple(lines), (0.0, 1.0))


def epoch_chart(title: str, epochs: Sequence[float], values: Mapping[str, Sequence[float]]) -> Chart:
    """Return a chart of values per epoch, such as losses or mAP."""
    lines = tuple(Line(name, tuple(epochs), tuple(column)) for name, column in values.items())
    return Chart(title, "epoch", "", lines, integer_x=True)
