"""A made satellite image of any size: the same every time, drawn piece by piece so that it is never whole in memory.

Ground of two textures, fields, woods and roads; on them vehicles, tanks and planes of 12 to 40 pixels, which are
labelled, and twice as many things that look alike and are not: painted rectangles, ponds, tree crowns, crosses of
paths; and houses. What is labelled stands above the ground and throws a shadow; what is painted on it doesn't.
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
_WIDE = 2560  # columns that are drawn at once
_FINE = 2  # drawn larger and shrunk, for soft edges
_CELL = 48  # pixels that an object has for itself
_SUN = (0.16, 0.2)  # where shadows fall, in lengths of the object
Point = tuple[float, float]
Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Thing:
    """Something drawn: its kind, middle, length, direction, shade (0 to 1) and which variant it is."""

    kind: str
    x: float
    y: float
    length: float
    angle: float
    shade: float
    variant: int

    @property
    def reach(self) -> float:
        """No pixel of it, nor of its shadow, is further from its middle."""
        return self.length * 0.9 + 4


@dataclass(frozen=True)
class Scenery:
    """All that an image shows, before a pixel is drawn.

    Attributes:
        side: width and height.
        seed: what everything is drawn from.
        roads: polylines with their widths.
        fields: quadrangles with their colours.
        things: objects and what looks like them.
        labels: class, left, top, right, bottom of the objects.
    """

    side: int
    seed: int
    roads: tuple[tuple[tuple[Point, ...], float], ...]
    fields: tuple[tuple[tuple[Point, ...], Colour], ...]
    things: tuple[Thing, ...]
    labels: NDArray[np.float64]


def lay_out(side: int, objects: int, seed: int) -> Scenery:
    """Decide what lies where."""
    rng = np.random.default_rng([seed, side])
    roads = tuple(_road(rng, side) for _ in range(max(side // 1000, 2)))
    fields = tuple(_field(rng, side) for _ in range(max(side * side // 1_600_000, 3)))
    taken: set[tuple[int, int]] = set()
    things: list[Thing] = []
    labels: list[list[float]] = []
    while len(labels) < objects:
        kind = NAMES[int(rng.choice(3, p=[0.4, 0.3, 0.3]))]
        for thing in _group(rng, side, kind, taken)[: objects - len(labels)]:
            things.append(thing)
            labels.append([float(NAMES.index(kind)), *_bounds(thing)])
    lures = 0
    while lures < 2 * objects:
        group = _group(rng, side, ("paint", "pond", "crown", "crossing")[int(rng.integers(4))], taken)
        things += group
        lures += len(group)
    houses = [house for _ in range(objects) if (house := _house(rng, side, taken)) is not None]
    return Scenery(side, seed, roads, fields, (*houses, *things), np.array(labels).reshape(-1, 5))


def _road(rng: np.random.Generator, side: int) -> tuple[tuple[Point, ...], float]:
    """A line that wanders from edge to edge."""
    across = rng.random() < 0.5
    place = rng.uniform(0, side)
    points = []
    for step in np.linspace(-100, side + 100, max(side // 400, 4)):
        points.append((float(step), float(place)) if across else (float(place), float(step)))
        place += rng.normal(0, 120)
    return tuple(points), float(rng.uniform(14, 30))


def _field(rng: np.random.Generator, side: int) -> tuple[tuple[Point, ...], Colour]:
    x, y = rng.uniform(0, side, 2)
    half, tilt = rng.uniform(120, 600, 2), rng.uniform(0, math.pi)
    corners = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    turned = [_turn(a * half[0], b * half[1], tilt) for a, b in corners]
    base = np.array([(96, 112, 66), (134, 128, 84), (150, 138, 104), (82, 98, 62)][int(rng.integers(4))])
    red, green, blue = (int(value) for value in base + rng.normal(0, 8, 3))
    return tuple((x + a, y + b) for a, b in turned), (red, green, blue)


def _group(rng: np.random.Generator, side: int, kind: str, taken: set[tuple[int, int]]) -> list[Thing]:
    """Some of a kind near each other, each in a cell of its own."""
    cells = side // _CELL
    middle = rng.integers(1, cells - 1, 2)
    common = rng.uniform(0, math.pi)
    found = []
    for _ in range(int(rng.integers(1, 9))):
        column, row = (int(value) for value in np.clip(middle + rng.integers(-3, 4, 2), 0, cells - 1))
        if (column, row) in taken:
            continue
        taken.add((column, row))
        length = _length(rng, kind)
        room = max(_CELL / 2 - length * 0.55 - 1, 0)
        x, y = ((place + 0.5) * _CELL + float(rng.uniform(-room, room)) for place in (column, row))
        angle = common + rng.choice([0, math.pi / 2]) + rng.normal(0, 0.1)
        found.append(Thing(kind, x, y, length, float(angle), float(rng.random()), int(rng.integers(1 << 16))))
    return found


def _house(rng: np.random.Generator, side: int, taken: set[tuple[int, int]]) -> Thing | None:
    """A roof of several cells, where they are free."""
    column, row = (int(value) for value in rng.integers(2, side // _CELL - 2, 2))
    own = {(column + a, row + b) for a in (-1, 0, 1) for b in (-1, 0, 1)}
    if own & taken:
        return None
    taken |= own
    x, y = ((place + 0.5) * _CELL for place in (column, row))
    angle, variant = float(rng.uniform(0, math.pi)), int(rng.integers(1 << 16))
    return Thing("house", x, y, float(rng.uniform(55, 105)), angle, float(rng.random()), variant)


def _length(rng: np.random.Generator, kind: str) -> float:
    low, high = {"vehicle": (18, 30), "tank": (14, 38), "plane": (24, 38), "paint": (18, 30), "pond": (14, 38)}.get(
        kind, (16, 36)
    )
    return float(rng.uniform(low, high))


def _turn(x: float, y: float, angle: float) -> Point:
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


def _outline(thing: Thing) -> list[Point]:
    """The corners of what is labelled, around its middle."""
    half = thing.length / 2
    if thing.kind in {"tank", "pond", "crown"}:
        return [(half * math.cos(turn), half * math.sin(turn)) for turn in np.linspace(0, 2 * math.pi, 40)[:-1]]
    if thing.kind in {"plane", "crossing"}:
        shape = _PLANE if thing.kind == "plane" else _CROSS
    else:
        shape = [(-1, -0.5), (1, -0.5), (1, 0.5), (-1, 0.5)]
    return [_turn(x * half, y * half, thing.angle) for x, y in shape]


_PLANE = [
    (1, 0), (0.8, 0.1), (0.3, 0.12), (-0.15, 0.95), (-0.35, 0.95), (-0.15, 0.12), (-0.7, 0.1), (-0.9, 0.4),
    (-1, 0.4), (-0.95, 0), (-1, -0.4), (-0.9, -0.4), (-0.7, -0.1), (-0.15, -0.12), (-0.35, -0.95), (-0.15, -0.95),
    (0.3, -0.12), (0.8, -0.1),
]  # fmt: skip
_CROSS = [
    (1, 0.14), (0.14, 0.14), (0.14, 0.95), (-0.14, 0.95), (-0.14, 0.14), (-1, 0.14), (-1, -0.14), (-0.14, -0.14),
    (-0.14, -0.95), (0.14, -0.95), (0.14, -0.14), (1, -0.14),
]  # fmt: skip


def _bounds(thing: Thing) -> tuple[float, float, float, float]:
    corners = np.array(_outline(thing)) + np.array([thing.x, thing.y])
    (left, top), (right, bottom) = corners.min(0), corners.max(0)
    return float(left), float(top), float(right), float(bottom)


def draw(scenery: Scenery, left: int, top: int, right: int, bottom: int) -> NDArray[np.uint8]:
    """The pixels of a part of the image; parts fit together."""
    wide, tall = right - left, bottom - top
    picture = Image.fromarray(_ground(scenery, left, top, wide, tall))
    picture = picture.resize((wide * _FINE, tall * _FINE), Image.Resampling.BILINEAR)
    drawing = ImageDraw.Draw(picture)

    def at(points: object) -> list[Point]:
        return [((x - left) * _FINE, (y - top) * _FINE) for x, y in points]  # type: ignore[attr-defined]

    for corners, colour in scenery.fields:
        if _near(corners, (left, top, right, bottom)):
            _paint_field(drawing, at(corners), colour)
    for points, width in scenery.roads:
        drawing.line(at(points), fill=(112, 110, 108), width=round(width * _FINE), joint="curve")
        drawing.line(at(points), fill=(176, 174, 160), width=_FINE)
    for thing in scenery.things:
        reach = thing.reach
        if left - reach < thing.x < right + reach and top - reach < thing.y < bottom + reach:
            _paint_thing(drawing, thing, at([(thing.x, thing.y)])[0])
    pixels = np.asarray(picture.resize((wide, tall), Image.Resampling.BOX)).astype(np.float32)
    pixels += np.random.default_rng([scenery.seed, left, top]).normal(0, 5, (tall, wide, 1)).astype(np.float32)
    return pixels.clip(0, 255).astype(np.uint8)


def _near(corners: tuple[Point, ...], part: tuple[int, int, int, int]) -> bool:
    across, down = zip(*corners, strict=True)
    return bool(min(across) < part[2] and max(across) > part[0] and min(down) < part[3] and max(down) > part[1])


def _ground(scenery: Scenery, left: int, top: int, wide: int, tall: int) -> NDArray[np.uint8]:
    """Soil and woods: noise at two scales, from tables that are the same for every part."""
    colour = np.zeros((tall, wide, 3), np.float32)
    for number, (cell, base, spread) in enumerate(((512, 105, 26), (24, 0, 11))):
        columns = np.arange(left // cell - 1, (left + wide) // cell + 3)
        rows = np.arange(top // cell - 1, (top + tall) // cell + 3)
        table = np.random.default_rng([scenery.seed, number]).normal(0, 1, (64, 64, 3)).astype(np.float32)
        table[..., 1:] = 0.8 * table[..., :1] + 0.35 * table[..., 1:]  # mostly lighter and darker
        grid = table[rows[:, None] % 64, columns[None] % 64]
        box = ((left / cell) - columns[0], (top / cell) - rows[0])
        frame = (box[0], box[1], box[0] + wide / cell, box[1] + tall / cell)
        for band in range(3):
            layer = Image.fromarray(np.ascontiguousarray(grid[..., band]))
            colour[..., band] += base + spread * np.asarray(layer.resize((wide, tall), Image.Resampling.BICUBIC, frame))
    colour *= np.array([0.98, 1.02, 0.78], np.float32)
    return colour.clip(0, 255).astype(np.uint8)


def _paint_field(drawing: ImageDraw.ImageDraw, corners: list[Point], colour: Colour) -> None:
    drawing.polygon(corners, fill=colour)
    darker = (colour[0] - 10, colour[1] - 10, colour[2] - 8)
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = corners
    for share in np.arange(0.02, 1, 0.03):  # furrows
        begin = (ax + (dx - ax) * share, ay + (dy - ay) * share)
        end = (bx + (cx - bx) * share, by + (cy - by) * share)
        drawing.line([begin, end], fill=darker, width=2 * _FINE)


def _paint_thing(drawing: ImageDraw.ImageDraw, thing: Thing, middle: Point) -> None:
    shape = [(middle[0] + x * _FINE, middle[1] + y * _FINE) for x, y in _outline(thing)]
    if thing.kind in {*NAMES, "house"}:
        fall = thing.length * _FINE
        drawing.polygon([(x + _SUN[0] * fall, y + _SUN[1] * fall) for x, y in shape], fill=(38, 40, 36))
    drawing.polygon(shape, fill=_colour(thing))
    half = thing.length / 2 * _FINE

    def local(points: list[Point]) -> list[Point]:
        turned = [_turn(x * half, y * half, thing.angle) for x, y in points]
        return [(middle[0] + x, middle[1] + y) for x, y in turned]

    if thing.kind == "vehicle":
        drawing.polygon(local([(0.25, -0.36), (0.5, -0.36), (0.5, 0.36), (0.25, 0.36)]), fill=(34, 38, 46))
        drawing.polygon(local([(-0.85, -0.34), (-0.7, -0.34), (-0.7, 0.34), (-0.85, 0.34)]), fill=(40, 44, 52))
    elif thing.kind == "tank":
        inner = half * 0.8
        rim = [middle[0] - inner, middle[1] - inner, middle[0] + inner, middle[1] + inner]
        drawing.ellipse(rim, outline=(150, 150, 148), width=_FINE)
        drawing.line([middle, (middle[0] + half * 0.8, middle[1])], fill=(120, 120, 120), width=_FINE)
    elif thing.kind == "house":
        red, green, blue = _colour(thing)
        drawing.polygon(local([(-1, -0.5), (1, -0.5), (1, 0), (-1, 0)]), fill=(red - 24, green - 22, blue - 20))
    elif thing.kind == "crown":
        for turn in range(5):
            x, y = _turn(0.45 * half, 0, turn * 1.26 + thing.angle)
            spot = [
                middle[0] + x - half / 4,
                middle[1] + y - half / 4,
                middle[0] + x + half / 4,
                middle[1] + y + half / 4,
            ]
            drawing.ellipse(spot, fill=(62 + 8 * turn, 88 + 6 * turn, 44))


_CARS = ((206, 206, 204), (60, 62, 68), (150, 44, 40), (52, 76, 128), (128, 130, 132), (190, 170, 120))


def _colour(thing: Thing) -> Colour:
    light = round(40 * thing.shade)
    if thing.kind in {"vehicle", "paint"}:
        return _CARS[thing.variant % len(_CARS)]
    return {
        "tank": (188 + light, 188 + light, 182 + light),
        "plane": (196 + light, 198 + light, 202 + light),
        "pond": ((70 + light, 92 + light, 104 + light), (176 + light, 176 + light, 168 + light))[thing.variant % 2],
        "crown": (54, 78, 40),
        "house": ((138 + light, 84 + light, 66 + light), (116 + light, 116 + light, 118 + light))[thing.variant % 2],
        "crossing": (170 + light, 164 + light, 148 + light),
    }[thing.kind]


def write(scenery: Scenery, image: Path, label: Path) -> None:
    """Write the image as a TIFF of JPEG tiles, a row of tiles at a time, and the labels as YOLO has them."""
    import tifffile

    side = scenery.side
    image.parent.mkdir(parents=True, exist_ok=True)
    label.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(
        image,
        _tiles(scenery),
        shape=(side, side, 3),
        dtype=np.uint8,
        photometric="rgb",
        tile=(TILE, TILE),
        compression="jpeg",
        compressionargs={"level": 92},
    )
    rows = []
    for kind, left, top, right, bottom in scenery.labels.clip(0, side).tolist():
        box = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
        rows.append(f"{int(kind)} " + " ".join(f"{value / side:.8f}" for value in box) + "\n")
    label.write_text("".join(rows))


def _tiles(scenery: Scenery) -> Iterator[NDArray[np.uint8]]:
    side = scenery.side
    for top in range(0, side, TILE):
        for left in range(0, side, _WIDE):
            right, bottom = min(left + _WIDE, side), min(top + TILE, side)
            part = draw(scenery, left, top, right, bottom)
            across = -(-(right - left) // TILE) * TILE
            part = np.pad(part, ((0, TILE - part.shape[0]), (0, across - part.shape[1]), (0, 0)), mode="edge")
            for begin in range(0, across, TILE):
                yield np.ascontiguousarray(part[:, begin : begin + TILE])
