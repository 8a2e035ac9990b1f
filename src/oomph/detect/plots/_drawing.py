"""Boxes drawn on images, with Pillow alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ...charts import COLORS, Font, font
from ..dataset import Pixels


@dataclass(frozen=True)
class DrawnBox:
    """A box to draw: corners in pixels, class, and confidence (None for a label)."""

    corners: tuple[float, float, float, float]
    label: int
    confidence: float | None = None


def prediction_boxes(rows: NDArray[np.float32]) -> list[DrawnBox]:
    """Convert rows of `nms` (corners, confidence, class) to boxes to draw."""
    return [
        DrawnBox((left, top, right, bottom), int(label), confidence)
        for left, top, right, bottom, confidence, label in rows.astype(float).tolist()
    ]


def truth_boxes(rows: NDArray[np.float32]) -> list[DrawnBox]:
    """Convert label rows in pixels (class, corners) to boxes to draw."""
    return [
        DrawnBox((left, top, right, bottom), int(label))
        for label, left, top, right, bottom in rows.astype(float).tolist()
    ]


def label_boxes(rows: NDArray[np.float32], height: int, width: int) -> list[DrawnBox]:
    """Convert label rows (class, x, y, w, h as fractions) to boxes to draw on an image of that size."""
    return [
        DrawnBox(((x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height), int(label))
        for label, x, y, w, h in rows.astype(float).tolist()
    ]


def draw_boxes(image: Pixels, boxes: Sequence[DrawnBox], names: Sequence[str]) -> Pixels:
    """Return a copy of an image with boxes and class names, the most confident on top."""
    canvas = Image.fromarray(image)
    drawing = ImageDraw.Draw(canvas)
    line_width = max(round(sum(canvas.size) / 600), 1)
    text_font = font(max(round(sum(canvas.size) / 90), 9))
    for box in sorted(boxes, key=lambda box: box.confidence or 0):
        _draw_box(drawing, box, names, line_width, text_font)
    return np.asarray(canvas)


def _draw_box(
    drawing: ImageDraw.ImageDraw, box: DrawnBox, names: Sequence[str], line_width: int, text_font: Font
) -> None:
    color = COLORS[box.label % len(COLORS)]
    left, right = sorted((box.corners[0], box.corners[2]))
    top, bottom = sorted((box.corners[1], box.corners[3]))
    drawing.rectangle((left, top, right, bottom), outline=color, width=line_width)
    name = names[box.label] if 0 <= box.label < len(names) else str(box.label)
    text = name if box.confidence is None else f"{name} {box.confidence:.2f}"
    image_width = drawing.im.size[0]
    _, _, width, height = drawing.textbbox((0, 0), text, font=text_font)
    text_top = top - height - 2 if top >= height + 2 else max(top, 0)  # inside the box if there is no space above
    text_left = max(min(left, image_width - width - 3), 0)  # moved in from the right edge
    drawing.rectangle((text_left, text_top, text_left + width + 2, text_top + height + 2), fill=color)
    drawing.text((text_left + 1, text_top), text, fill=(255, 255, 255), font=text_font)
