"""Label files: one row a box, packed into one array for all images; rows that can't be used are set aside."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ._issues import OUTSIDE, Collector

_COLUMNS = 5
_POLYGON = 7  # a class and at least three points
_ROUNDING = 0.01  # of the image; further outside, a box is told to have been cut
_PIXELS = 2.0  # larger values are no fractions with a mistake but pixels
_LARGEST = 16 * 2**20  # bytes of a label file


@dataclass(frozen=True)
class LabelTable:
    """The boxes of many images in one array.

    Attributes:
        boxes: (all boxes, 5): class, x, y, w, h as fractions of the image, inside it.
        starts: (images + 1,): where each image's boxes begin; the last is the number of boxes.
    """

    boxes: NDArray[np.float32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, index: int) -> NDArray[np.float32]:
        """The boxes of one image."""
        return self.boxes[self.starts[index] : self.starts[index + 1]]

    def as_one_class(self) -> LabelTable:
        """The same boxes, all of class 0."""
        boxes = self.boxes.copy()
        boxes[:, 0] = 0
        return LabelTable(boxes, self.starts)

    def counts(self, classes: int) -> NDArray[np.int64]:
        """Boxes of each class."""
        return np.bincount(self.boxes[:, 0].astype(np.int64), minlength=classes)


def read_labels(
    files: Sequence[Path], classes: int, roots: Sequence[Path], aside: Collector
) -> tuple[LabelTable, list[int]]:
    """Read the label file of each image, and tell which images can be used.

    A file that is missing or empty is an image with nothing to find. One that can't be read says nothing of its image,
    which would be taught as background: it is left out.
    """
    read = [_read(file, classes, roots, aside) for file in files]
    tables = [table for table in read if table is not None]
    sizes = np.array([len(table) for table in tables], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
    whole = np.concatenate(tables) if tables else np.zeros((0, _COLUMNS))
    kept = [at for at, table in enumerate(read) if table is not None]
    return LabelTable(whole.astype(np.float32), starts), kept


def _nothing() -> NDArray[np.float64]:
    return np.zeros((0, _COLUMNS))


def _read(file: Path, classes: int, roots: Sequence[Path], aside: Collector) -> NDArray[np.float64] | None:
    """The boxes of a label file; None where it is refused."""
    try:
        real = file.resolve()
        if not any(real.is_relative_to(root) for root in roots):
            aside.add("label file", OUTSIDE, f"{file} -> {real}")
            return None
        facts = real.stat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > _LARGEST:  # a pipe would be waited for
            aside.add("label file", "too large to be one, or no plain file", str(file))
            return None
        text = real.read_text(encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        aside.add("label file", "not there: an image with nothing to find", str(file), broken=False)
        return _nothing()
    except (OSError, RuntimeError) as error:
        aside.add("label file", "can't be read", f"{file} ({error})")
        return None
    rows = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not rows:
        aside.add("label file", "empty: an image with nothing to find", str(file), broken=False)
        return _nothing()
    return _unique(_usable(rows, file, classes, aside), file, aside)


def _usable(rows: list[tuple[int, list[str]]], file: Path, classes: int, aside: Collector) -> NDArray[np.float64]:
    """The rows that can be used, at once where all of them can."""
    try:
        quick = np.array([row for _, row in rows], dtype=np.float64)
    except ValueError:
        quick = _nothing()
    if quick.shape == (len(rows), _COLUMNS) and _all_good(quick, classes):
        return quick
    kept = [box for number, row in rows if (box := _row(row, f"{file}:{number}", classes, aside)) is not None]
    return np.array(kept, dtype=np.float64).reshape(-1, _COLUMNS)


def _all_good(table: NDArray[np.float64], classes: int) -> bool:
    label, centre, size = table[:, 0], table[:, 1:3], table[:, 3:5]
    return bool(
        np.isfinite(table).all()
        and (label == np.floor(label)).all()
        and (label >= 0).all()
        and (label < classes).all()
        and (size > 0).all()
        and (centre - size / 2 >= 0).all()
        and (centre + size / 2 <= 1).all()
    )


def _row(row: list[str], place: str, classes: int, aside: Collector) -> list[float] | None:
    """One row as class and box inside the image; None if it was set aside."""
    try:
        values = np.array([float(value) for value in row])
    except ValueError:
        return _refuse("not made of numbers", place, aside)
    if not np.isfinite(values).all():
        return _refuse("with a number that isn't finite", place, aside)
    polygon = len(values) >= _POLYGON and len(values) % 2 == 1
    if len(values) != _COLUMNS and not polygon:
        return _refuse("with neither 5 numbers nor the corners of a polygon", place, aside)
    if values[0] != np.floor(values[0]) or not 0 <= values[0] < classes:
        return _refuse(f"of a class that isn't one of 0 to {classes - 1}", place, aside)
    if np.abs(values[1:]).max() > _PIXELS:
        return _refuse("in pixels and not in fractions of the image", place, aside)
    if polygon:
        aside.add("box", "made from the corners of a polygon", place, broken=False)
        points = values[1:].reshape(-1, 2)
        low, high = points.min(0), points.max(0)
    else:
        low, high = values[1:3] - values[3:5] / 2, values[1:3] + values[3:5] / 2
    return _cut(float(values[0]), low, high, place, aside)


def _cut(
    label: float, low: NDArray[np.float64], high: NDArray[np.float64], place: str, aside: Collector
) -> list[float] | None:
    if (high <= low).any():
        return _refuse("of no size", place, aside)
    inner_low, inner_high = low.clip(0, 1), high.clip(0, 1)
    if (inner_high <= inner_low).any():
        return _refuse("outside the image", place, aside)
    if max((inner_low - low).max(), (high - inner_high).max()) > _ROUNDING:
        aside.add("box", "partly outside the image: cut at its edge", place, broken=False)
    centre, size = (inner_low + inner_high) / 2, inner_high - inner_low
    return [label, float(centre[0]), float(centre[1]), float(size[0]), float(size[1])]


def _refuse(why: str, place: str, aside: Collector) -> list[float] | None:
    aside.add("box", why, place)
    return None


def _unique(boxes: NDArray[np.float64], file: Path, aside: Collector) -> NDArray[np.float64]:
    """Each row once, in the order of the file."""
    _, first = np.unique(boxes, axis=0, return_index=True)
    if len(first) < len(boxes):
        aside.add("box", "written twice", str(file), broken=False, count=len(boxes) - len(first))
        return boxes[np.sort(first)]
    return boxes
