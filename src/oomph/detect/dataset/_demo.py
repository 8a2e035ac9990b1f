"""A small data set made on the spot, the same every time: drawn shapes of many sizes on cluttered ground.

It is small enough for a laptop without a GPU and yet no toy: several classes, each with a colour that most of its
objects have more or less and some have not, objects from 10 to 80 pixels, overlaps, noise, strokes in the same colours
that are no objects, and images with nothing to find.
"""

from __future__ import annotations

import colorsys
import io
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ...files import write_atomically
from ..model._loss import Gains
from ..training._hyperparameters import Recipe
from ._augmentation import Augmentation

NAMES = ("disc", "square", "triangle", "cross")
SIDE = 128
_FINE = 3  # drawn larger and shrunk, for soft edges
_SEED = 5
_HUES = (0.02, 0.58, 0.33, 0.14)  # of the classes: red, blue, green, yellow
_USUAL = 0.85  # share of objects that have about the colour of their class
_VISIBLE = 0.5  # of an object, or it isn't labelled


@dataclass(frozen=True)
class EmbeddedSize:
    """How many images the data set has."""

    train: int = 384
    val: int = 96


_RECIPE = Recipe(
    rate=0.1,
    warmup_epochs=2.0,
    least_warmup=20,
    nominal_batch=12,
    gains=Gains(objectness=(640 / SIDE) ** 2, classes=4.0),
    augmentation=Augmentation(mosaic=0.5),
)


@dataclass(frozen=True)
class EmbeddedRun:
    """The short course that suits the data set: about three minutes on one core.

    Optimizer steps are many and small here: with YOLOv5's nominal batch of 64 there would be too few of them. Class
    and objectness weigh what they weigh in large images of 80 classes, where they would be scaled down otherwise.
    """

    network: str = "n"
    size: int = SIDE
    batch: int = 12
    epochs: int = 18
    names: tuple[str, ...] = NAMES
    images: EmbeddedSize = field(default_factory=EmbeddedSize)
    recipe: Recipe = field(default_factory=lambda: _RECIPE)
    spare: str = "270MiB"  # beyond what is taken before training; the batch in one piece would exceed it
    every: int = 8  # epochs between validations


def write_embedded(folder: Path, size: EmbeddedSize | None = None) -> Path:
    """Write the data set into a folder, images, labels and data.yaml, and return the path of the latter.

    What is there already stays: a second call costs nothing, an interrupted one is finished.
    """
    size = size or EmbeddedSize()
    for split, count in (("train", size.train), ("val", size.val)):
        (folder / "images" / split).mkdir(parents=True, exist_ok=True)
        (folder / "labels" / split).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            label = folder / "labels" / split / f"{index:04d}.txt"
            if label.exists():
                continue
            image, boxes = draw_scene((_SEED, int(split == "val"), index))
            _write(folder / "images" / split / f"{index:04d}.png", _png(image))
            rows = [f"{int(row[0])} " + " ".join(f"{value:.6f}" for value in row[1:]) for row in boxes]
            _write(label, "".join(f"{row}\n" for row in rows).encode())
    yaml = folder / "data.yaml"
    names = "".join(f"  {index}: {name}\n" for index, name in enumerate(NAMES))
    _write(yaml, f"path: .\ntrain: images/train\nval: images/val\nnames:\n{names}".encode())
    return yaml


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, since another run may be reading or making the same data set."""
    write_atomically(path, lambda file: file.write(content), lasting=False)


def _png(image: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def draw_scene(key: tuple[int, ...]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """One image (128, 128, 3) and its boxes (n, 5), from a key alone."""
    rng = np.random.default_rng(key)
    picture = _ground(rng)
    owner = np.full((SIDE, SIDE), -1)
    boxes: list[list[float]] = []
    areas: list[int] = []
    for number in range(_how_many(rng)):
        kind = int(rng.integers(len(NAMES)))
        mask = _shape(kind, rng)
        solid = mask > 127  # noqa: PLR2004  more than half covered
        if not solid.any():
            boxes.append([])
            areas.append(1)
            continue
        picture = _paint(picture, mask, _colour(rng, kind))
        owner[solid] = number
        areas.append(int(solid.sum()))
        boxes.append([float(kind), *_around(solid)])
    seen = [box for at, box in enumerate(boxes) if box and (owner == at).sum() >= _VISIBLE * areas[at]]
    noisy = picture + rng.normal(0, rng.uniform(2, 12), picture.shape)
    return noisy.clip(0, 255).astype(np.uint8), np.array(seen, dtype=np.float32).reshape(-1, 5)


def _how_many(rng: np.random.Generator) -> int:
    return 0 if rng.random() < 0.04 else int(rng.integers(2, 8))  # noqa: PLR2004  a few have nothing to find


def _ground(rng: np.random.Generator) -> NDArray[np.float64]:
    """Blotches of dull colours at two scales, with bright strokes on them."""
    blotches = rng.uniform(50, 205, (4, 4, 1)) + rng.normal(0, 14, (4, 4, 3))
    coarse = Image.fromarray(blotches.clip(0, 255).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    fine = rng.normal(0, 12, (SIDE // 8, SIDE // 8, 3)).repeat(8, 0).repeat(8, 1)
    drawing = ImageDraw.Draw(coarse)
    for _ in range(int(rng.integers(3, 12))):
        begin = rng.uniform(0, SIDE, 2)
        end = begin + rng.normal(0, 22, 2)
        drawing.line([*begin, *end], fill=_colour(rng, int(rng.integers(len(NAMES)))), width=int(rng.integers(1, 4)))
    return np.asarray(coarse).astype(np.float64) + fine


def _colour(rng: np.random.Generator, kind: int) -> tuple[int, int, int]:
    """Mostly a shade of what the class has, sometimes any other."""
    hue = _HUES[kind] + rng.normal(0, 0.03) if rng.random() < _USUAL else rng.random()
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, rng.uniform(0.45, 1), rng.uniform(0.45, 1))
    return int(red * 255), int(green * 255), int(blue * 255)


def _paint(picture: NDArray[np.float64], mask: NDArray[np.uint8], colour: tuple[int, int, int]) -> NDArray[np.float64]:
    """Fill a shape with a colour that grows darker from side to side."""
    ramp = np.linspace(15, -15, SIDE)
    share = mask[..., None] / 255
    return picture * (1 - share) + (np.array(colour) + ramp[None, :, None]) * share


def _shape(kind: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """How much of each pixel a random shape covers, 0 to 255."""
    radius = _FINE * 5 * math.exp(rng.uniform(0, math.log(8)))  # 10 to 80 pixels across
    margin = min(radius * 0.8, SIDE * _FINE / 2)
    x, y = rng.uniform(margin, SIDE * _FINE - margin, 2)
    angle = rng.uniform(0, 2 * math.pi)
    canvas = Image.new("L", (SIDE * _FINE, SIDE * _FINE))
    drawing = ImageDraw.Draw(canvas)
    if NAMES[kind] == "disc":
        flat = radius * rng.uniform(0.75, 1)
        drawing.ellipse([x - radius, y - flat, x + radius, y + flat], fill=255)
    else:
        corners = [
            (x + radius * reach * math.cos(angle + turn), y + radius * reach * math.sin(angle + turn))
            for turn, reach in _outline(NAMES[kind])
        ]
        drawing.polygon(corners, fill=255)
    return np.asarray(canvas.resize((SIDE, SIDE), Image.Resampling.BOX))


def _outline(name: str) -> list[tuple[float, float]]:
    """Corners as angle and distance from the middle."""
    if name == "cross":
        arm, inner = 0.32, 0.45  # half the arm's opening in radians, and how far the notches reach in
        return [
            corner
            for quarter in range(4)
            for corner in (
                (quarter * math.pi / 2 - arm, 1.0),
                (quarter * math.pi / 2 + arm, 1.0),
                ((quarter + 0.5) * math.pi / 2, inner),
            )
        ]
    sides = 3 if name == "triangle" else 4
    return [(2 * math.pi * side / sides, 1.0) for side in range(sides)]


def _around(solid: NDArray[np.bool_]) -> list[float]:
    """Centre and size of the box around a shape, as fractions."""
    rows, columns = np.flatnonzero(solid.any(1)), np.flatnonzero(solid.any(0))
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    values = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
    return [float(value) / SIDE for value in values]
