"""Plots of precision and recall: PR_curve.png, and F1, precision and recall against confidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...charts import figure_png, hex_color, new_figure
from ..metrics import ConfidenceCurves, Scores
from ._class_labels import MAX_LISTED, class_labels

_WIDTH, _HEIGHT = 900, 550  # pixels
_MEAN_COLOR = "#1a3ea8"


def precision_recall_plot(scores: Scores) -> bytes:
    """Draw precision against recall at IoU 0.5, of each class and of their mean, as PNG."""
    labels = class_labels([item.name for item in scores.by_class])
    classes = [(label, item) for label, item in zip(labels, scores.by_class, strict=True) if item.curve]
    names = [f"{label} {item.map50 or 0:.3f}" for label, item in classes]
    curves = np.array([item.curve for _, item in classes])
    mean = f"all classes {scores.map50:.3f} mAP50"
    texts = ("precision against recall", "recall", "precision")
    return _curve_plot(texts, np.linspace(0, 1, curves.shape[-1]), curves, names, mean)


def f1_plot(curves: ConfidenceCurves, names: Sequence[str]) -> bytes:
    """Draw F1 against confidence as PNG."""
    return _confidence_plot("F1", curves, curves.f1, names)


def precision_plot(curves: ConfidenceCurves, names: Sequence[str]) -> bytes:
    """Draw precision against confidence as PNG."""
    return _confidence_plot("precision", curves, curves.precision, names)


def recall_plot(curves: ConfidenceCurves, names: Sequence[str]) -> bytes:
    """Draw recall against confidence as PNG."""
    return _confidence_plot("recall", curves, curves.recall, names)


def _confidence_plot(title: str, curves: ConfidenceCurves, values: NDArray[np.float64], names: Sequence[str]) -> bytes:
    labels = class_labels(names)
    mean = "all classes"
    if len(values):
        average = values.mean(0)
        best = int(average.argmax())
        mean = f"all classes {average[best]:.2f} at {curves.confidences[best]:.3f}"
    texts = (f"{title} against confidence", "confidence", title)
    return _curve_plot(texts, curves.confidences, values, [labels[number] for number in curves.classes], mean)


def _curve_plot(
    texts: tuple[str, str, str],
    x: NDArray[np.float64],
    curves: NDArray[np.float64],
    names: Sequence[str],
    mean_name: str,
) -> bytes:
    """Draw a line per class and a thick one of their mean; many classes are thin gray lines without a name.

    Args:
        texts: the title and the labels of both axes.
        x: (points,), from 0 to 1.
        curves: (classes, points), from 0 to 1.
        names: of the classes.
        mean_name: of the mean.
    """
    figure = new_figure(_WIDTH, _HEIGHT)
    area = figure.add_subplot(title=texts[0], xlabel=texts[1], ylabel=texts[2], xlim=(0, 1), ylim=(0, 1.02))
    area.grid(visible=True, color="#e1e1e1")
    if not len(curves):
        area.text(0.5, 0.5, "no labeled boxes", ha="center", va="center", color="gray")
        return figure_png(figure)
    area.plot(x, curves.mean(0), color=_MEAN_COLOR, linewidth=3, label=mean_name, zorder=3)
    if len(curves) > MAX_LISTED:
        area.plot(x, curves.T, color="#b0b0b0", linewidth=0.7)
    elif len(curves) > 1:  # the mean of one class is that class
        for number, (name, curve) in enumerate(zip(names, curves, strict=True)):
            area.plot(x, curve, color=hex_color(number), linewidth=1.2, label=name)
    is_named = 1 < len(curves) <= MAX_LISTED
    figure.legend(loc="outside right upper" if is_named else "outside lower center", frameon=False)
    return figure_png(figure)
