"""The plot of a dataset's labels: labels.png."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...charts import figure_png, hex_color, new_figure
from ...units import count_of
from ._class_labels import class_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 1600, 520  # pixels
_MAX_NAMED = 45  # classes whose names fit beside the bars
_MANY = 25  # classes whose names need a small font
_BINS = 50


def labels_plot(boxes: NDArray[np.float32], names: Sequence[str]) -> bytes:
    """Draw boxes per class, where the boxes are, and how large, as PNG.

    Args:
        boxes: (boxes, 5): class, center x and y, width and height as fractions of the image.
        names: of the classes.
    """
    figure = new_figure(_WIDTH, _HEIGHT)
    counts, centers, sizes = (figure.add_subplot(1, 3, number) for number in (1, 2, 3))
    _draw_counts(counts, boxes[:, 0], names)
    _draw_density(centers, boxes[:, 1], boxes[:, 2])
    centers.set(title="centers of the boxes", xlabel="x, fraction of the width", ylabel="y, fraction of the height")
    centers.invert_yaxis()  # as in images
    _draw_density(sizes, boxes[:, 3], boxes[:, 4])
    sizes.set(title="sizes of the boxes", xlabel="width, fraction of the image", ylabel="height, fraction of the image")
    return figure_png(figure)


def _draw_counts(area: Axes, labels: NDArray[np.float32], names: Sequence[str]) -> None:
    counts = np.bincount(labels.astype(np.int64), minlength=len(names))[: len(names)]
    area.barh(range(len(names)), counts, color=[hex_color(number) for number in range(len(names))])
    area.set(title=f"{count_of(len(labels), 'box', 'boxes')} by class", xlabel="boxes")
    area.set_ylim(len(names) - 0.4, -0.6)  # the first class on top
    area.locator_params(axis="x", integer=True)
    if len(names) <= _MAX_NAMED:
        area.set_yticks(range(len(names)), labels=class_labels(names), fontsize=10 if len(names) <= _MANY else 7)
    else:
        area.set_ylabel("class number")


def _draw_density(area: Axes, x: NDArray[np.float32], y: NDArray[np.float32]) -> None:
    """Draw how many boxes each part of the unit square has; parts without boxes are white."""
    area.hist2d(x, y, bins=_BINS, range=((0, 1), (0, 1)), cmin=1, cmap="viridis_r")
    area.set_aspect("equal")
