"""The plot of the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...charts import figure_png, new_figure
from ..metrics import CONFUSION_CONFIDENCE, CONFUSION_IOU, per_true_class
from ._class_labels import MAX_LISTED, class_labels

_SMALL, _LARGE = (900, 780), (1400, 1250)  # pixels
_MAX_NAMED = 100  # classes whose names fit beside the rows
_DARK = 0.55  # fractions above it are drawn dark, with white numbers on them
_MIN_SHOWN = 0.005  # smaller fractions would be written 0.00


def confusion_plot(matrix: NDArray[np.int64], names: Sequence[str]) -> bytes:
    """Draw a confusion matrix, each column as fractions of its true class, as PNG.

    Args:
        matrix: (predicted, true) counts, each with background last.
        names: of the classes, without background.
    """
    fractions = per_true_class(matrix)
    is_small = len(names) <= MAX_LISTED
    figure = new_figure(*(_SMALL if is_small else _LARGE))
    area = figure.add_subplot(
        title=f"confusion matrix, fractions of each true class (IoU {CONFUSION_IOU}, "
        f"confidence {CONFUSION_CONFIDENCE})",
        xlabel="true class (gray: none)" if np.isnan(fractions).any() else "true class",
        ylabel="predicted class",
        facecolor="#ececec",  # shows where a column has no values
    )
    picture = area.imshow(np.ma.masked_invalid(fractions), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    figure.colorbar(picture, ax=area, fraction=0.046)
    if len(names) <= _MAX_NAMED:
        size = 9 if is_small else 6.5
        labels = [*class_labels(names), "background"]
        area.set_xticks(range(len(labels)), labels=labels, rotation=90, fontsize=size)
        area.set_yticks(range(len(labels)), labels=labels, fontsize=size)
    if is_small:
        for (row, column), value in np.ndenumerate(fractions):
            if value >= _MIN_SHOWN:
                color = "white" if value > _DARK else "black"
                area.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, fontsize=9)
    return figure_png(figure)
