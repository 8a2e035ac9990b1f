"""Boxes of a data set in packed arrays, read from YOLO folders, COCO files or folders of classes.

What is wrong with a label is noted and the label left out; the image stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidFile, MissingFile, UsageError
from ._index import ImageIndex, Name

_COLUMNS = 5
_NO_POLYGON = 3  # points that make no area


@dataclass(frozen=True)
class LabelIssue:
    """A label that is left out, or a file of them that isn't there, and why."""

    path: str
    line: int
    reason: str


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes and boxes of every image of an index.

    Attributes:
        names: of the classes.
        classes: the class of each box.
        boxes: left, top, right, bottom in pixels of the image as it is seen.
        offsets: where the boxes of each image start, and where the last ones end.
        faults: what was left out.
    """

    names: tuple[str, ...]
    classes: NDArray[np.int32]
    boxes: NDArray[np.float32]
    offsets: NDArray[np.int64]
    faults: tuple[LabelIssue, ...] = ()

    def of(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Classes and boxes of an image."""
        part = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return self.classes[part], self.boxes[part]


@dataclass(frozen=True)
class _Row:
    """One box before it is checked; sides as fractions of the image."""

    kind: int
    left: float
    top: float
    right: float
    bottom: float


class _Collector:
    """Checks boxes and packs them."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self.names = names
        self.faults: list[LabelIssue] = []
        self._classes: list[int] = []
        self._boxes: list[tuple[float, float, float, float]] = []
        self._offsets = [0]
        self._seen: set[_Row] = set()

    def add(self, path: str, line: int, row: _Row, size: tuple[int, int]) -> None:
        """Take a box of the image that is under way, or note what is wrong with it."""
        reason = self._wrong(row)
        if reason is None:
            box = (max(row.left, 0.0), max(row.top, 0.0), min(row.right, 1.0), min(row.bottom, 1.0))
            if box[0] < box[2] and box[1] < box[3]:
                self._seen.add(row)
                self._classes.append(row.kind)
                self._boxes.append((box[0] * size[0], box[1] * size[1], box[2] * size[0], box[3] * size[1]))
                return
            reason = "outside of the image, or of no size"
        self.faults.append(LabelIssue(path, line, reason))

    def _wrong(self, row: _Row) -> str | None:
        if not np.isfinite([row.left, row.top, row.right, row.bottom]).all():
            return "not a number"
        if row.kind < 0 or (self.names is not None and row.kind >= len(self.names)):
            return f"class {row.kind}, where there are {len(self.names or ())}"
        return "a duplicate" if row in self._seen else None

    def next_image(self) -> None:
        """The image's boxes are complete."""
        self._offsets.append(len(self._boxes))
        self._seen.clear()

    def labels(self) -> Labels:
        """All boxes, packed."""
        highest = max(self._classes, default=-1)
        return Labels(
            names=self.names if self.names is not None else tuple(str(number) for number in range(highest + 1)),
            classes=np.array(self._classes, np.int32),
            boxes=np.array(self._boxes, np.float32).reshape(-1, 4),
            offsets=np.array(self._offsets, np.int64),
            faults=tuple(self.faults),
        )


def read_yolo(
    index: ImageIndex, names: tuple[str, ...] | None = None, label_of: Callable[[str], str] | None = None
) -> Labels:
    """Read YOLO's text files: a class and four fractions a line, or a class and a polygon, which becomes its box.

    Args:
        index: the images.
        names: of the classes; numbers without.
        label_of: the label file of an image; the last folder "images" becomes "labels", without.
    """
    found = _Collector(names)
    for number in range(len(index)):
        path = (label_of or yolo_label)(index.path(number))
        if index.reason(number) is None:
            for line, row in _yolo_rows(path, found.faults):
                found.add(path, line, row, index[number].shown)
        found.next_image()
    return found.labels()


def yolo_label(image: str) -> str:
    """Where YOLO keeps the labels of an image: "images" becomes "labels", the suffix ".txt"."""
    path = Path(image)
    parts = list(path.parts)
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == "images":
            parts[place] = "labels"
            break
    return str(Path(*parts).with_suffix(".txt"))


def _yolo_rows(path: str, faults: list[LabelIssue]) -> Iterator[tuple[int, _Row]]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return  # an image without objects
    except OSError as error:
        faults.append(LabelIssue(path, 0, f"can't be read: {error.strerror}"))
        return
    for line, words in enumerate((row.split() for row in text.splitlines()), 1):
        if not words:
            continue
        try:
            values = [float(word) for word in words]
            row = _yolo_row(values)
        except (ValueError, OverflowError):
            faults.append(LabelIssue(path, line, "not a class and four fractions"))
        else:
            yield line, row


def _yolo_row(values: list[float]) -> _Row:
    if len(values) == _COLUMNS:
        kind, x, y, wide, tall = values
        sides = (x - wide / 2, y - tall / 2, x + wide / 2, y + tall / 2)
    else:
        kind, *points = values
        if len(points) % 2 or len(points) < 2 * _NO_POLYGON:
            raise ValueError(values)
        across, down = points[::2], points[1::2]
        sides = (min(across), min(down), max(across), max(down))
    if kind != int(kind):
        raise ValueError(kind)
    return _Row(int(kind), *sides)


def read_coco(file: Name, images: Name) -> tuple[ImageIndex, Labels]:
    """Read a COCO file of annotations; images it names are looked for in a folder.

    Raises:
        MissingFile: there is no such file.
        InvalidFile: it isn't COCO's.
    """
    data = _json(Path(file))
    try:
        pictures = {int(picture["id"]): str(picture["file_name"]) for picture in data["images"]}
        kinds = sorted((int(kind["id"]), str(kind["name"])) for kind in data["categories"])
        notes: dict[int, list[Any]] = {number: [] for number in pictures}
        for note in data["annotations"]:
            notes.setdefault(int(note["image_id"]), []).append(note)
    except (KeyError, TypeError, ValueError):
        raise InvalidFile(f"{str(file)!r} is no COCO file", "it needs images, annotations and categories") from None
    index = ImageIndex.of(Path(images) / name for name in pictures.values())
    found = _Collector(tuple(name for _, name in kinds))
    numbers = {kind: number for number, (kind, _) in enumerate(kinds)}
    for place, picture in enumerate(pictures):
        size = index[place].shown if index.reason(place) is None else (0, 0)
        for note in notes[picture] if size[0] else ():
            _coco_box(found, (str(file), note), numbers, size)
        found.next_image()
    return index, found.labels()


def _coco_box(found: _Collector, what: tuple[str, Any], numbers: dict[int, int], size: tuple[int, int]) -> None:
    file, note = what
    line = note.get("id", 0)
    try:
        left, top, wide, tall = (float(value) for value in note["bbox"])
        kind = numbers[int(note["category_id"])]
    except (KeyError, TypeError, ValueError):
        found.faults.append(LabelIssue(file, int(line) if isinstance(line, int) else 0, "no box or no such category"))
        return
    row = _Row(kind, left / size[0], top / size[1], (left + wide) / size[0], (top + tall) / size[1])
    found.add(file, int(line) if isinstance(line, int) else 0, row, size)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise MissingFile(f"there is no file {str(path)!r}", "name the file of annotations") from None
    except (OSError, ValueError, RecursionError):
        raise InvalidFile(f"{str(path)!r} is no JSON file", "name the file of annotations") from None


def read_classes(index: ImageIndex, folder: Name) -> Labels:
    """Read a folder of classes: the first folder below it names an image's class, and its box is the whole image.

    Raises:
        UsageError: no image lies in a folder of a class.
    """
    root = Path(folder)
    kinds = [_first_below(root, index.path(number)) for number in range(len(index))]
    names = tuple(sorted({kind for kind in kinds if kind is not None}))
    if not names:
        raise UsageError(f"no image lies in a folder below {str(root)!r}", "put each class into a folder of its own")
    numbers = {name: number for number, name in enumerate(names)}
    found = _Collector(names)
    for number, kind in enumerate(kinds):
        if kind is None:
            found.faults.append(LabelIssue(index.path(number), 0, "in no folder of a class"))
        elif index.reason(number) is None:
            found.add(index.path(number), 0, _Row(numbers[kind], 0, 0, 1, 1), index[number].shown)
        found.next_image()
    return found.labels()


def _first_below(root: Path, path: str) -> str | None:
    try:
        parts = Path(path).relative_to(root).parts
    except ValueError:
        return None
    return parts[0] if len(parts) > 1 else None
