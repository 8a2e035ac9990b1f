"""Synthetic satellite images of any size: reproducible, and drawn tile by tile so that they are never whole in memory.

The ground has two textures, fields, woods and roads. Vehicles, tanks and planes of 12 to 40 pixels are labeled. Twice
as many distractors look similar: painted rectangles, ponds, tree crowns and crossings of paths. There are also houses.
Labeled objects and houses cast a shadow; distractors don't.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

NAMES = ("vehicle", "tank", "plane")
TILE = 512
_DRAWN_COLUMNS = 2560  # columns that are drawn at once
_SUPERSAMPLING = 2  # for soft edges
_CELL = 48  # side of the grid cell of an object, in pixels
_SHADOW = (0.16, 0.2)  # offset, in lengths of the object
Point = tuple[float, float]
Color = tuple[int, int, int]


@dataclass(frozen=True)
class SceneObject:
    """A drawn object: kind, center, length, direction, shade (0 to 1) and variant."""

    kind: str
    x: float
    y: float
    length: float
    angle: float
    shade: float
    variant: int

    @property
    def reach(self) -> float:
        """Distance from the center that no pixel of the object or of its shadow exceeds."""
        return self.length * 0.9 + 4


@dataclass(frozen=True)
class Scene:
    """The contents of an image, before a pixel is drawn.

    Attributes:
        side: width and height.
        seed: seed of everything random.
        roads: polylines with their widths.
        fields: quadrilaterals with their colors.
        objects: labeled objects, distractors and houses.
        labels: class, left, top, right, bottom of the labeled objects.
    """

    side: int
    seed: int
    roads: tuple[tuple[tuple[Point, ...], float], ...]
    fields: tuple[tuple[tuple[Point, ...], Color], ...]
    objects: tuple[SceneObject, ...]
    labels: NDArray[np.float64]


def plan_scene(side: int, labeled: int, seed: int) -> Scene:
    """Choose the position of everything, with a number of labeled objects."""
    rng = np.random.default_rng([seed, side])
    roads = tuple(_road(rng, side) for _ in range(max(side // 1000, 2)))
    fields = tuple(_field(rng, side) for _ in range(max(side * side // 1_600_000, 3)))
    occupied: set[tuple[int, int]] = set()
    objects: list[SceneObject] = []
    labels: list[list[float]] = []
    while len(labels) < labeled:
        kind = NAMES[int(rng.choice(3, p=[0.4, 0.3, 0.3]))]
        for thing in _group(rng, side, kind, occupied)[: labeled - len(labels)]:
            objects.append(thing)
            labels.append([float(NAMES.index(kind)), *_bounds(thing)])
    distractors = 0
    while distractors < 2 * labeled:
        group = _group(rng, side, ("paint", "pond", "crown", "crossing")[int(rng.integers(4))], occupied)
        objects += group
        distractors += len(group)
    houses = [house for _ in range(labeled) if (house := _house(rng, side, occupied)) is not None]
    return Scene(side, seed, roads, fields, (*houses, *objects), np.array(labels).reshape(-1, 5))


def _road(rng: np.random.Generator, side: int) -> tuple[tuple[Point, ...], float]:
    """Return a winding line from edge to edge, and its width."""
    across = rng.random() < 0.5
    offset = rng.uniform(0, side)
    points = []
    for step in np.linspace(-100, side + 100, max(side // 400, 4)):
        points.append((float(step), float(offset)) if across else (float(offset), float(step)))
        offset += rng.normal(0, 120)
    return tuple(points), float(rng.uniform(14, 30))


def _field(rng: np.random.Generator, side: int) -> tuple[tuple[Point, ...], Color]:
    x, y = rng.uniform(0, side, 2)
    half, tilt = rng.uniform(120, 600, 2), rng.uniform(0, math.pi)
    corners = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    rotated = [_rotate(a * half[0], b * half[1], tilt) for a, b in corners]
    base = np.array([(96, 112, 66), (134, 128, 84), (150, 138, 104), (82, 98, 62)][int(rng.integers(4))])
    red, green, blue = (int(value) for value in base + rng.normal(0, 8, 3))
    return tuple((x + a, y + b) for a, b in rotated), (red, green, blue)


def _group(rng: np.random.Generator, side: int, kind: str, occupied: set[tuple[int, int]]) -> list[SceneObject]:
    """Return objects of one kind in neighboring free cells."""
    cells = side // _CELL
    center = rng.integers(1, cells - 1, 2)
    direction = rng.uniform(0, math.pi)
    group = []
    for _ in range(int(rng.integers(1, 9))):
        column, row = (int(value) for value in np.clip(center + rng.integers(-3, 4, 2), 0, cells - 1))
        if (column, row) in occupied:
            continue
        occupied.add((column, row))
        length = _length(rng, kind)
        margin = max(_CELL / 2 - length * 0.55 - 1, 0)
        x, y = ((cell + 0.5) * _CELL + float(rng.uniform(-margin, margin)) for cell in (column, row))
        angle = direction + rng.choice([0, math.pi / 2]) + rng.normal(0, 0.1)
        group.append(SceneObject(kind, x, y, length, float(angle), float(rng.random()), int(rng.integers(1 << 16))))
    return group


def _house(rng: np.random.Generator, side: int, occupied: set[tuple[int, int]]) -> SceneObject | None:
    """Return a house on nine free cells; None if some are occupied."""
    column, row = (int(value) for value in rng.integers(2, side // _CELL - 2, 2))
    cells = {(column + a, row + b) for a in (-1, 0, 1) for b in (-1, 0, 1)}
    if cells & occupied:
        return None
    occupied |= cells
    x, y = ((cell + 0.5) * _CELL for cell in (column, row))
    angle, variant = float(rng.uniform(0, math.pi)), int(rng.integers(1 << 16))
    return SceneObject("house", x, y, float(rng.uniform(55, 105)), angle, float(rng.random()), variant)


def _length(rng: np.random.Generator, kind: str) -> float:
    low, high = {"vehicle": (18, 30), "tank": (14, 38), "plane": (24, 38), "paint": (18, 30), "pond": (14, 38)}.get(
        kind, (16, 36)
    )
    return float(rng.uniform(low, high))


def _rotate(x: float, y: float, angle: float) -> Point:
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


def _outline(thing: SceneObject) -> list[Point]:
    """Return the corners of an object, relative to its center."""
    half = thing.length / 2
    if thing.kind in {"tank", "pond", "crown"}:
        return [(half * math.cos(angle), half * math.sin(angle)) for angle in np.linspace(0, 2 * math.pi, 40)[:-1]]
    if thing.kind in {"plane", "crossing"}:
        shape = _PLANE if thing.kind == "plane" else _CROSS
    else:
        shape = [(-1, -0.5), (1, -0.5), (1, 0.5), (-1, 0.5)]
    return [_rotate(x * half, y * half, thing.angle) for x, y in shape]


_PLANE = [
    (1, 0), (0.8, 0.1), (0.3, 0.12), (-0.15, 0.95), (-0.35, 0.95), (-0.15, 0.12), (-0.7, 0.1), (-0.9, 0.4),
    (-1, 0.4), (-0.95, 0), (-1, -0.4), (-0.9, -0.4), (-0.7, -0.1), (-0.15, -0.12), (-0.35, -0.95), (-0.15, -0.95),
    (0.3, -0.12), (0.8, -0.1),
]  # fmt: skip
_CROSS = [
    (1, 0.14), (0.14, 0.14), (0.14, 0.95), (-0.14, 0.95), (-0.14, 0.14), (-1, 0.14), (-1, -0.14), (-0.14, -0.14),
    (-0.14, -0.95), (0.14, -0.95), (0.14, -0.14), (1, -0.14),
]  # fmt: skip


def _bounds(thing: SceneObject) -> tuple[float, float, float, float]:
    corners = np.array(_outline(thing)) + np.array([thing.x, thing.y])
    (left, top), (right, bottom) = corners.min(0), corners.max(0)
    return float(left), float(top), float(right), float(bottom)


def draw(scene: Scene, left: int, top: int, right: int, bottom: int) -> NDArray[np.uint8]:
    """Draw a part of the image; adjacent parts match."""
    width, height = right - left, bottom - top
    picture = Image.fromarray(_ground(scene, left, top, width, height))
    picture = picture.resize((width * _SUPERSAMPLING, height * _SUPERSAMPLING), Image.Resampling.BILINEAR)
    drawing = ImageDraw.Draw(picture)

    def at(points: object) -> list[Point]:
        return [((x - left) * _SUPERSAMPLING, (y - top) * _SUPERSAMPLING) for x, y in points]  # type: ignore[attr-defined]

    for corners, color in scene.fields:
        if _overlaps(corners, (left, top, right, bottom)):
            _draw_field(drawing, at(corners), color)
    for points, road_width in scene.roads:
        drawing.line(at(points), fill=(112, 110, 108), width=round(road_width * _SUPERSAMPLING), joint="curve")
        drawing.line(at(points), fill=(176, 174, 160), width=_SUPERSAMPLING)
    for thing in scene.objects:
        reach = thing.reach
        if left - reach < thing.x < right + reach and top - reach < thing.y < bottom + reach:
            _draw_object(drawing, thing, at([(thing.x, thing.y)])[0])
    pixels = np.asarray(picture.resize((width, height), Image.Resampling.BOX)).astype(np.float32)
    pixels += np.random.default_rng([scene.seed, left, top]).normal(0, 5, (height, width, 1)).astype(np.float32)
    return pixels.clip(0, 255).astype(np.uint8)


def _overlaps(corners: tuple[Point, ...], part: tuple[int, int, int, int]) -> bool:
    across, down = zip(*corners, strict=True)
    return bool(min(across) < part[2] and max(across) > part[0] and min(down) < part[3] and max(down) > part[1])


def _ground(scene: Scene, left: int, top: int, width: int, height: int) -> NDArray[np.uint8]:
    """Draw soil and woods: noise at two scales, from tables that are the same for every part."""
    color = np.zeros((height, width, 3), np.float32)
    for number, (cell, base, spread) in enumerate(((512, 105, 26), (24, 0, 11))):
        columns = np.arange(left // cell - 1, (left + width) // cell + 3)
        rows = np.arange(top // cell - 1, (top + height) // cell + 3)
        table = np.random.default_rng([scene.seed, number]).normal(0, 1, (64, 64, 3)).astype(np.float32)
        table[..., 1:] = 0.8 * table[..., :1] + 0.35 * table[..., 1:]  # mostly brightness, little hue
        grid = table[rows[:, None] % 64, columns[None] % 64]
        box = ((left / cell) - columns[0], (top / cell) - rows[0])
        frame = (box[0], box[1], box[0] + width / cell, box[1] + height / cell)
        for band in range(3):
            layer = Image.fromarray(np.ascontiguousarray(grid[..., band]))
            noise = np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC, frame))
            color[..., band] += base + spread * noise
    color *= np.array([0.98, 1.02, 0.78], np.float32)
    return color.clip(0, 255).astype(np.uint8)


def _draw_field(drawing: ImageDraw.ImageDraw, corners: list[Point], color: Color) -> None:
    drawing.polygon(corners, fill=color)
    darker = (color[0] - 10, color[1] - 10, color[2] - 8)
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = corners
    for fraction in np.arange(0.02, 1, 0.03).tolist():  # furrows
        begin = (ax + (dx - ax) * fraction, ay + (dy - ay) * fraction)
        end = (bx + (cx - bx) * fraction, by + (cy - by) * fraction)
        drawing.line([begin, end], fill=darker, width=2 * _SUPERSAMPLING)


def _draw_object(drawing: ImageDraw.ImageDraw, thing: SceneObject, center: Point) -> None:
    shape = [(center[0] + x * _SUPERSAMPLING, center[1] + y * _SUPERSAMPLING) for x, y in _outline(thing)]
    if thing.kind in {*NAMES, "house"}:
        length = thing.length * _SUPERSAMPLING
        drawing.polygon([(x + _SHADOW[0] * length, y + _SHADOW[1] * length) for x, y in shape], fill=(38, 40, 36))
    drawing.polygon(shape, fill=_color(thing))
    half = thing.length / 2 * _SUPERSAMPLING

    def local(points: list[Point]) -> list[Point]:
        rotated = [_rotate(x * half, y * half, thing.angle) for x, y in points]
        return [(center[0] + x, center[1] + y) for x, y in rotated]

    if thing.kind == "vehicle":
        drawing.polygon(local([(0.25, -0.36), (0.5, -0.36), (0.5, 0.36), (0.25, 0.36)]), fill=(34, 38, 46))
        drawing.polygon(local([(-0.85, -0.34), (-0.7, -0.34), (-0.7, 0.34), (-0.85, 0.34)]), fill=(40, 44, 52))
    elif thing.kind == "tank":
        inner = half * 0.8
        rim = [center[0] - inner, center[1] - inner, center[0] + inner, center[1] + inner]
        drawing.ellipse(rim, outline=(150, 150, 148), width=_SUPERSAMPLING)
        drawing.line([center, (center[0] + half * 0.8, center[1])], fill=(120, 120, 120), width=_SUPERSAMPLING)
    elif thing.kind == "house":
        red, green, blue = _color(thing)
        drawing.polygon(local([(-1, -0.5), (1, -0.5), (1, 0), (-1, 0)]), fill=(red - 24, green - 22, blue - 20))
    elif thing.kind == "crown":
        for number in range(5):
            x, y = _rotate(0.45 * half, 0, number * 1.26 + thing.angle)
            spot = [
                center[0] + x - half / 4,
                center[1] + y - half / 4,
                center[0] + x + half / 4,
                center[1] + y + half / 4,
            ]
            drawing.ellipse(spot, fill=(62 + 8 * number, 88 + 6 * number, 44))


_CAR_COLORS = ((206, 206, 204), (60, 62, 68), (150, 44, 40), (52, 76, 128), (128, 130, 132), (190, 170, 120))


def _color(thing: SceneObject) -> Color:
    light = round(40 * thing.shade)
    if thing.kind in {"vehicle", "paint"}:
        return _CAR_COLORS[thing.variant % len(_CAR_COLORS)]
    return {
        "tank": (188 + light, 188 + light, 182 + light),
        "plane": (196 + light, 198 + light, 202 + light),
        "pond": ((70 + light, 92 + light, 104 + light), (176 + light, 176 + light, 168 + light))[thing.variant % 2],
        "crown": (54, 78, 40),
        "house": ((138 + light, 84 + light, 66 + light), (116 + light, 116 + light, 118 + light))[thing.variant % 2],
        "crossing": (170 + light, 164 + light, 148 + light),
    }[thing.kind]


def write_scene(scene: Scene, image: Path, label: Path) -> None:
    """Write the image as a TIFF with JPEG tiles, one row of tiles at a time, and its labels in YOLO format."""
    import tifffile

    side = scene.side
    image.parent.mkdir(parents=True, exist_ok=True)
    label.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(
        image,
        _tiles(scene),
        shape=(side, side, 3),
        dtype=np.uint8,
        photometric="rgb",
        tile=(TILE, TILE),
        compression="jpeg",
        compressionargs={"level": 92},
    )
    rows = []
    for kind, left, top, right, bottom in scene.labels.clip(0, side).tolist():
        box = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
        rows.append(f"{int(kind)} " + " ".join(f"{value / side:.8f}" for value in box) + "\n")
    label.write_text("".join(rows))


def _tiles(scene: Scene) -> Iterator[NDArray[np.uint8]]:
    side = scene.side
    for top in range(0, side, TILE):
        for left in range(0, side, _DRAWN_COLUMNS):
            right, bottom = min(left + _DRAWN_COLUMNS, side), min(top + TILE, side)
            part = draw(scene, left, top, right, bottom)
            across = -(-(right - left) // TILE) * TILE
            part = np.pad(part, ((0, TILE - part.shape[0]), (0, across - part.shape[1]), (0, 0)), mode="edge")
            for begin in range(0, across, TILE):
                yield np.ascontiguousarray(part[:, begin : begin + TILE])
