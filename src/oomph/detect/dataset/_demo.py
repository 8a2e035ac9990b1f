"""A small generated dataset, identical every time: shapes of many sizes on a cluttered background.

It is small enough for a laptop without a GPU, but not trivial: four classes, each with a color that most of its objects
have approximately, objects from 10 to 80 pixels, overlaps, noise, strokes in the same colors that are not objects, and
images without objects.
"""

from __future__ import annotations

import colorsys
import io
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from ...files import write_atomically

DEMO_NAMES = ("disc", "square", "triangle", "cross")
DEMO_IMGSZ = 128
_SUPERSAMPLING = 3  # shapes are drawn larger and downscaled, for soft edges
_SEED = 5
_HUES = (0.02, 0.58, 0.33, 0.14)  # of the classes: red, blue, green, yellow
_TYPICAL_COLOR = 0.85  # fraction of objects with about the color of their class
_MIN_VISIBLE = 0.5  # fraction of an object; less visible objects aren't labeled


@dataclass(frozen=True)
class DemoSize:
    """Number of images in the demo dataset."""

    train: int = 384
    val: int = 96


def write_demo_dataset(folder: Path, size: DemoSize | None = None) -> Path:
    """Write images, labels and data.yaml into a folder, and return the path of the data.yaml.

    Existing files are kept: a second call costs nothing, and an interrupted one is completed.
    """
    size = size or DemoSize()
    for split, count in (("train", size.train), ("val", size.val)):
        (folder / "images" / split).mkdir(parents=True, exist_ok=True)
        (folder / "labels" / split).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            label = folder / "labels" / split / f"{index:04d}.txt"
            if label.exists():
                continue
            image, boxes = draw_scene((_SEED, int(split == "val"), index))
            _write(folder / "images" / split / f"{index:04d}.png", _encode_png(image))
            rows = [f"{int(row[0])} " + " ".join(f"{value:.6f}" for value in row[1:]) for row in boxes]
            _write(label, "".join(f"{row}\n" for row in rows).encode())
    yaml = folder / "data.yaml"
    names = "".join(f"  {index}: {name}\n" for index, name in enumerate(DEMO_NAMES))
    _write(yaml, f"path: .\ntrain: images/train\nval: images/val\nnames:\n{names}".encode())
    return yaml


def _write(path: Path, content: bytes) -> None:
    # Atomically, because another run may be reading or writing the same dataset.
    write_atomically(path, lambda file: file.write(content), fsync=False)


def _encode_png(image: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", compress_level=1)
    return buffer.getvalue()


def draw_scene(key: tuple[int, ...]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return an image (128, 128, 3) and its boxes (n, 5) that depend on the key alone."""
    rng = np.random.default_rng(key)
    image = _background(rng)
    owner = np.full((DEMO_IMGSZ, DEMO_IMGSZ), -1)  # topmost object of each pixel
    boxes: list[list[float]] = []
    areas: list[int] = []
    for number in range(_object_count(rng)):
        label = int(rng.integers(len(DEMO_NAMES)))
        mask = _shape_mask(label, rng)
        solid = mask > 127  # noqa: PLR2004  more than half covered
        if not solid.any():
            boxes.append([])
            areas.append(1)
            continue
        image = _fill(image, mask, _random_color(rng, label))
        owner[solid] = number
        areas.append(int(solid.sum()))
        boxes.append([float(label), *_bounding_box(solid)])
    visible = [
        box for number, box in enumerate(boxes) if box and (owner == number).sum() >= _MIN_VISIBLE * areas[number]
    ]
    noisy = image + rng.normal(0, rng.uniform(2, 12), image.shape)
    return noisy.clip(0, 255).astype(np.uint8), np.array(visible, dtype=np.float32).reshape(-1, 5)


def _object_count(rng: np.random.Generator) -> int:
    return 0 if rng.random() < 0.04 else int(rng.integers(2, 8))  # noqa: PLR2004  a few images have no objects


def _background(rng: np.random.Generator) -> NDArray[np.float64]:
    """Return dull blotches at two scales with bright strokes on them."""
    blotches = rng.uniform(50, 205, (4, 4, 1)) + rng.normal(0, 14, (4, 4, 3))
    size = (DEMO_IMGSZ, DEMO_IMGSZ)
    coarse = Image.fromarray(blotches.clip(0, 255).astype(np.uint8)).resize(size, Image.Resampling.BICUBIC)
    fine = rng.normal(0, 12, (DEMO_IMGSZ // 8, DEMO_IMGSZ // 8, 3)).repeat(8, 0).repeat(8, 1)
    drawing = ImageDraw.Draw(coarse)
    for _ in range(int(rng.integers(3, 12))):
        begin = rng.uniform(0, DEMO_IMGSZ, 2)
        end = begin + rng.normal(0, 22, 2)
        color = _random_color(rng, int(rng.integers(len(DEMO_NAMES))))
        drawing.line([*begin, *end], fill=color, width=int(rng.integers(1, 4)))
    return np.asarray(coarse).astype(np.float64) + fine


def _random_color(rng: np.random.Generator, label: int) -> tuple[int, int, int]:
    """Return a shade of the class's color, or sometimes any other color."""
    hue = _HUES[label] + rng.normal(0, 0.03) if rng.random() < _TYPICAL_COLOR else rng.random()
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, rng.uniform(0.45, 1), rng.uniform(0.45, 1))
    return int(red * 255), int(green * 255), int(blue * 255)


def _fill(image: NDArray[np.float64], mask: NDArray[np.uint8], color: tuple[int, int, int]) -> NDArray[np.float64]:
    """Fill a shape with a color that gets darker from left to right."""
    ramp = np.linspace(15, -15, DEMO_IMGSZ)
    coverage = mask[..., None] / 255
    filled: NDArray[np.float64] = image * (1 - coverage) + (np.array(color) + ramp[None, :, None]) * coverage
    return filled


def _shape_mask(label: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return the coverage of each pixel by a random shape, 0 to 255."""
    side = DEMO_IMGSZ * _SUPERSAMPLING
    radius = _SUPERSAMPLING * 5 * math.exp(rng.uniform(0, math.log(8)))  # 10 to 80 pixels across
    margin = min(radius * 0.8, side / 2)
    x, y = rng.uniform(margin, side - margin, 2)
    angle = rng.uniform(0, 2 * math.pi)
    canvas = Image.new("L", (side, side))
    drawing = ImageDraw.Draw(canvas)
    if DEMO_NAMES[label] == "disc":
        flat = radius * rng.uniform(0.75, 1)
        drawing.ellipse([x - radius, y - flat, x + radius, y + flat], fill=255)
    else:
        corners = [
            (x + radius * reach * math.cos(angle + turn), y + radius * reach * math.sin(angle + turn))
            for turn, reach in _outline(DEMO_NAMES[label])
        ]
        drawing.polygon(corners, fill=255)
    return np.asarray(canvas.resize((DEMO_IMGSZ, DEMO_IMGSZ), Image.Resampling.BOX))


def _outline(name: str) -> list[tuple[float, float]]:
    """Return the corners of a shape as angle and distance from its center."""
    if name == "cross":
        arm, inner = 0.32, 0.45  # half the angle of an arm in radians, and the distance of the notches
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


def _bounding_box(solid: NDArray[np.bool_]) -> list[float]:
    """Return center and size of the box around a shape, as fractions."""
    rows, columns = np.flatnonzero(solid.any(1)), np.flatnonzero(solid.any(0))
    top, bottom, left, right = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
    values = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
    return [float(value) / DEMO_IMGSZ for value in values]
