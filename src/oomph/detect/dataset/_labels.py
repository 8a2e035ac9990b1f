"""YOLO label files: one row per box, packed into one array for all images."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ._issues import OUTSIDE_ROOTS, IssueLog

_COLUMNS = 5
_MIN_POLYGON_COLUMNS = 7  # a class and three points
_ROUNDING = 0.01  # fraction of the image; a box that reaches further outside is reported as clipped
_MAX_FRACTION = 2.0  # larger values are pixels, not slightly wrong fractions
_MAX_FILE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class LabelTable:
    """Boxes of many images in one array.

    Attributes:
        boxes: (all boxes, 5): class, x, y, w, h as fractions of the image, clipped to it.
        starts: (images + 1,): index of each image's first box; the last entry is the number of boxes.
    """

    boxes: NDArray[np.float32]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, index: int) -> NDArray[np.float32]:
        """Return the boxes of one image."""
        return self.boxes[self.starts[index] : self.starts[index + 1]]

    def as_single_cls(self) -> LabelTable:
        """Return a copy in which all boxes have class 0."""
        boxes = self.boxes.copy()
        boxes[:, 0] = 0
        return LabelTable(boxes, self.starts)

    def box_sizes(
        self, shapes: Sequence[tuple[int, int]], imgsz: int, tile: float = float("inf")
    ) -> NDArray[np.float64]:
        """Return width and height of every box in pixels, as the network sees them.

        Args:
            shapes: height and width of the images.
            imgsz: side that the longer side of an image, or a tile, is scaled to.
            tile: side of the tiles that images are cut into; infinity if they aren't.
        """
        sides = np.array([(wide, high) for high, wide in shapes], dtype=np.float64).reshape(-1, 2)
        scaled = sides * imgsz / sides.max(1, keepdims=True).clip(max=tile) if len(sides) else sides
        sizes: NDArray[np.float64] = self.boxes[:, 3:5] * np.repeat(scaled, np.diff(self.starts), axis=0)
        return sizes

    def counts(self, classes: int) -> NDArray[np.int64]:
        """Return the number of boxes of each class."""
        return np.bincount(self.boxes[:, 0].astype(np.int64), minlength=classes)


def label_path(image: Path) -> Path:
    """Return the label file of an image: `images/` replaced by `labels/` in its path, else next to the image."""
    parts = list(image.parts)
    for index in range(len(parts) - 2, -1, -1):
        if parts[index] == "images":
            parts[index] = "labels"
            break
    return Path(*parts).with_suffix(".txt")


def read_labels(
    files: Sequence[Path], classes: int, roots: Sequence[Path], log: IssueLog
) -> tuple[LabelTable, list[int]]:
    """Read the label file of each image; return the boxes and the indices of the usable images.

    A missing or empty file means an image without objects. An image with an unreadable label file is left out: it would
    be trained as background.
    """
    tables = [_read_file(file, classes, roots, log) for file in files]
    readable = [table for table in tables if table is not None]
    sizes = np.array([len(table) for table in readable], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
    boxes = np.concatenate(readable) if readable else _no_boxes()
    usable = [index for index, table in enumerate(tables) if table is not None]
    return LabelTable(boxes.astype(np.float32), starts), usable


def _no_boxes() -> NDArray[np.float64]:
    return np.zeros((0, _COLUMNS))


def _read_file(file: Path, classes: int, roots: Sequence[Path], log: IssueLog) -> NDArray[np.float64] | None:
    """Return the boxes of a label file; None if it can't be used."""
    try:
        real = file.resolve()
        if not any(real.is_relative_to(root) for root in roots):
            log.add("label file", OUTSIDE_ROOTS, f"{file} -> {real}")
            return None
        status = real.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:  # opening a pipe would block
            log.add("label file", "too large, or not a regular file", str(file))
            return None
        text = real.read_text(encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        log.add("image", "have no label file: used as background", str(file), broken=False)
        return _no_boxes()
    except (OSError, RuntimeError) as error:
        log.add("label file", "can't be read", f"{file} ({error})")
        return None
    rows = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not rows:
        log.add("image", "have no objects", None, broken=False)
        return _no_boxes()
    return _without_duplicates(_parse_rows(rows, file, classes, log), file, log)


def _parse_rows(rows: list[tuple[int, list[str]]], file: Path, classes: int, log: IssueLog) -> NDArray[np.float64]:
    """Return the valid rows; all at once if every row is valid, which is the usual case."""
    try:
        table = np.array([row for _, row in rows], dtype=np.float64)
    except ValueError:
        table = _no_boxes()
    if table.shape == (len(rows), _COLUMNS) and _is_valid(table, classes):
        return table
    boxes = [box for number, row in rows if (box := _parse_row(row, f"{file}:{number}", classes, log)) is not None]
    return np.array(boxes, dtype=np.float64).reshape(-1, _COLUMNS)


def _is_valid(table: NDArray[np.float64], classes: int) -> bool:
    label, center, size = table[:, 0], table[:, 1:3], table[:, 3:5]
    return bool(
        np.isfinite(table).all()
        and (label == np.floor(label)).all()
        and (label >= 0).all()
        and (label < classes).all()
        and (size > 0).all()
        and (center - size / 2 >= 0).all()
        and (center + size / 2 <= 1).all()
    )


def _parse_row(row: list[str], place: str, classes: int, log: IssueLog) -> list[float] | None:
    """Return class and box of one row, clipped to the image; None if it can't be used."""
    try:
        values = np.array([float(value) for value in row])
    except ValueError:
        return _skip("a value is not a number", place, log)
    if not np.isfinite(values).all():
        return _skip("a value is not finite", place, log)
    is_polygon = len(values) >= _MIN_POLYGON_COLUMNS and len(values) % 2 == 1
    if len(values) != _COLUMNS and not is_polygon:
        return _skip("neither 5 values nor a polygon", place, log)
    if values[0] != np.floor(values[0]) or not 0 <= values[0] < classes:
        return _skip(f"class not in 0 to {classes - 1}", place, log)
    if np.abs(values[1:]).max() > _MAX_FRACTION:
        return _skip("in pixels, not in fractions of the image", place, log)
    if is_polygon:
        log.add("box", "converted from a polygon", place, broken=False)
        points = values[1:].reshape(-1, 2)
        low, high = points.min(0), points.max(0)
    else:
        low, high = values[1:3] - values[3:5] / 2, values[1:3] + values[3:5] / 2
    return _clip(float(values[0]), low, high, place, log)


def _clip(
    label: float, low: NDArray[np.float64], high: NDArray[np.float64], place: str, log: IssueLog
) -> list[float] | None:
    if (high <= low).any():
        return _skip("zero width or height", place, log)
    clipped_low, clipped_high = low.clip(0, 1), high.clip(0, 1)
    if (clipped_high <= clipped_low).any():
        return _skip("outside the image", place, log)
    if max((clipped_low - low).max(), (high - clipped_high).max()) > _ROUNDING:
        log.add("box", "clipped at the edge of the image", place, broken=False)
    center, size = (clipped_low + clipped_high) / 2, clipped_high - clipped_low
    return [label, float(center[0]), float(center[1]), float(size[0]), float(size[1])]


def _skip(problem: str, place: str, log: IssueLog) -> list[float] | None:
    log.add("box", problem, place)
    return None


def _without_duplicates(boxes: NDArray[np.float64], file: Path, log: IssueLog) -> NDArray[np.float64]:
    _, first = np.unique(boxes, axis=0, return_index=True)
    if len(first) < len(boxes):
        log.add("box", "listed twice: used once", str(file), broken=False, count=len(boxes) - len(first))
        return boxes[np.sort(first)]
    return boxes
