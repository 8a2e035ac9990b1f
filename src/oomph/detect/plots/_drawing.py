"""Pictures: boxes drawn on images, several images on a sheet. With Pillow alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ..dataset._pixels import Pixels, blank, scale_into

# Twelve colours that stay apart on photographs; classes beyond begin again.
COLOURS = (
    (230, 60, 60),
    (60, 130, 240),
    (40, 180, 90),
    (250, 160, 30),
    (160, 80, 220),
    (20, 190, 200),
    (240, 90, 170),
    (150, 110, 60),
    (110, 110, 240),
    (190, 190, 30),
    (90, 150, 130),
    (240, 130, 110),
)


@dataclass(frozen=True)
class DrawnBox:
    """A box to draw: corners in pixels, class, and how sure it is (None for a label)."""

    corners: tuple[float, float, float, float]
    label: int
    sure: float | None = None


def found_boxes(rows: NDArray[np.float32]) -> list[DrawnBox]:
    """Rows of `suppress` (corners, confidence, class) as boxes to draw."""
    return [
        DrawnBox((left, top, right, bottom), int(label), sure)
        for left, top, right, bottom, sure, label in rows.astype(float).tolist()
    ]


def true_boxes(rows: NDArray[np.float32]) -> list[DrawnBox]:
    """Rows of labels in pixels (class, corners) as boxes to draw."""
    return [
        DrawnBox((left, top, right, bottom), int(label))
        for label, left, top, right, bottom in rows.astype(float).tolist()
    ]


def labelled_boxes(rows: NDArray[np.float32], height: int, width: int) -> list[DrawnBox]:
    """Label rows (class, x, y, w, h as fractions) as boxes to draw on an image of that size."""
    return [
        DrawnBox(((x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height), int(label))
        for label, x, y, w, h in rows.astype(float).tolist()
    ]


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font."""
    return ImageFont.load_default(size)


def draw_boxes(image: Pixels, boxes: Sequence[DrawnBox], names: Sequence[str]) -> Pixels:
    """A copy of an image with boxes and what is in them, the surest on top."""
    picture = Image.fromarray(image)
    drawing = ImageDraw.Draw(picture)
    line = max(round(sum(picture.size) / 600), 1)
    letters = font(max(round(sum(picture.size) / 90), 9))
    for box in sorted(boxes, key=lambda one: one.sure or 0):
        _draw_box(drawing, box, names, line, letters)
    return np.asarray(picture)


def _draw_box(
    drawing: ImageDraw.ImageDraw,
    box: DrawnBox,
    names: Sequence[str],
    line: int,
    letters: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    colour = COLOURS[box.label % len(COLOURS)]
    left, right = sorted((box.corners[0], box.corners[2]))
    top, bottom = sorted((box.corners[1], box.corners[3]))
    drawing.rectangle((left, top, right, bottom), outline=colour, width=line)
    name = names[box.label] if 0 <= box.label < len(names) else str(box.label)
    text = name if box.sure is None else f"{name} {box.sure:.2f}"
    room = drawing.im.size[0]
    _, _, wide, high = drawing.textbbox((0, 0), text, font=letters)
    above = top - high - 2 if top >= high + 2 else max(top, 0)  # inside, where there is no room above
    beside = max(min(left, room - wide - 3), 0)  # moved in from the right edge
    drawing.rectangle((beside, above, beside + wide + 2, above + high + 2), fill=colour)
    drawing.text((beside + 1, above), text, fill=(255, 255, 255), font=letters)


def captioned(image: Pixels, words: str) -> Pixels:
    """An image under a line of text."""
    strip = Image.new("RGB", (image.shape[1], 26), (255, 255, 255))
    ImageDraw.Draw(strip).text((8, 5), words, fill=(40, 40, 40), font=font(14))
    return np.concatenate((np.asarray(strip), image))


def sheet(images: Sequence[Pixels], cell: int = 320, most: int = 16, across: int = 1) -> Pixels:
    """Several images side by side, each fitted into a cell so high, and `across` times as wide."""
    shown = images[:most]
    wide = cell * across
    columns = max(math.ceil(math.sqrt(len(shown) / across)), 1)
    rows = max(math.ceil(len(shown) / columns), 1)
    canvas = blank(rows * cell, columns * wide)
    for index, image in enumerate(shown):
        ratio = min(cell / image.shape[0], wide / image.shape[1])
        part = canvas[index // columns * cell : (index // columns + 1) * cell]
        part = part[:, index % columns * wide : (index % columns + 1) * wide]
        shift = ((wide - image.shape[1] * ratio) / 2, (cell - image.shape[0] * ratio) / 2)
        scale_into(part, image, (ratio, ratio), shift)
    return canvas
