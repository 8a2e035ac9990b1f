"""The boxes of a split's YOLO label files, packed into one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...data import parse_yolo_labels, yolo_label_path
from ._issues import OUTSIDE_ROOTS, IssueLog

_COLUMNS = 5  # class and box


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
    return Path(yolo_label_path(str(image)))


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
    boxes = np.concatenate(readable) if readable else np.zeros((0, _COLUMNS))
    usable = [index for index, table in enumerate(tables) if table is not None]
    return LabelTable(boxes.astype(np.float32), starts), usable


def _read_file(file: Path, classes: int, roots: Sequence[Path], log: IssueLog) -> NDArray[np.float64] | None:
    """Return class and box of the objects in a label file; None if it can't be used."""
    try:
        real = file.resolve()
    except (OSError, RuntimeError) as error:
        log.add("label file", "can't be read", f"{file} ({error})")
        return None
    if not any(real.is_relative_to(root) for root in roots):
        log.add("label file", OUTSIDE_ROOTS, f"{file} -> {real}")
        return None
    labels = parse_yolo_labels(real, classes)
    for issue in labels.issues:
        if issue.line:
            log.add("box", issue.reason, f"{file}:{issue.line}", broken=issue.broken)
        elif issue.broken:
            log.add("label file", issue.reason, str(file))
        elif real.exists():
            log.add("image", "have no objects", None, broken=False)
        else:
            log.add("image", "have no label file: used as background", str(file), broken=False)
    return np.column_stack((labels.classes, labels.boxes)) if labels.readable else None
