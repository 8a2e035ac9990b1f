"""Boxes of a dataset in packed arrays, read from YOLO folders, COCO files or folders of classes.

An invalid label is listed as an issue and left out; the image stays.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidFile, MissingFile, UsageError
from ._index import ImageIndex, Name
from ._yolo_labels import LabelIssue, parse_yolo_labels

_Corners = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Labels:
    """Classes and boxes of every image of an index.

    Attributes:
        names: names of the classes.
        classes: class of each box.
        boxes: left, top, right, bottom in image pixels, after EXIF rotation.
        offsets: start of the boxes of each image, and the end of the last ones.
        issues: labels that were left out.
    """

    names: tuple[str, ...]
    classes: NDArray[np.int32]
    boxes: NDArray[np.float32]
    offsets: NDArray[np.int64]
    issues: tuple[LabelIssue, ...] = ()

    def of(self, index: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return the classes and boxes of an image."""
        part = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return self.classes[part], self.boxes[part]


class _LabelsBuilder:
    """Packs the labels of one image after another."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self.issues: list[LabelIssue] = []
        self._names = names
        self._classes: list[int] = []
        self._boxes: list[_Corners] = []
        self._offsets = [0]
        self._seen: set[tuple[int, _Corners]] = set()

    def add(self, label: int, corners: _Corners, size: tuple[int, int]) -> None:
        """Add a box of the current image; corners are fractions of it."""
        width, height = size
        left, top, right, bottom = corners
        self._classes.append(label)
        self._boxes.append((left * width, top * height, right * width, bottom * height))

    def add_checked(self, label: int, corners: _Corners, size: tuple[int, int], place: tuple[str, int]) -> None:
        """Clip a box to the image and add it, or list the reason why it is left out."""
        reason = None
        left, top, right, bottom = corners
        clipped = (max(left, 0.0), max(top, 0.0), min(right, 1.0), min(bottom, 1.0))
        if not np.isfinite(corners).all():
            reason = "a value is NaN or infinite"
        elif (label, corners) in self._seen:
            reason = "listed twice: used once"
        elif clipped[0] >= clipped[2] or clipped[1] >= clipped[3]:
            reason = "zero width or height, or outside the image"
        if reason is not None:
            self.issues.append(LabelIssue(*place, reason, broken=reason != "listed twice: used once"))
            return
        self._seen.add((label, corners))
        self.add(label, clipped, size)

    def next_image(self) -> None:
        """Finish the current image."""
        self._offsets.append(len(self._boxes))
        self._seen.clear()

    def build(self) -> Labels:
        """Pack all boxes."""
        highest = max(self._classes, default=-1)
        return Labels(
            names=self._names if self._names is not None else tuple(str(label) for label in range(highest + 1)),
            classes=np.array(self._classes, np.int32),
            boxes=np.array(self._boxes, np.float32).reshape(-1, 4),
            offsets=np.array(self._offsets, np.int64),
            issues=tuple(self.issues),
        )


def read_yolo(
    index: ImageIndex, names: tuple[str, ...] | None = None, label_of: Callable[[str], str] | None = None
) -> Labels:
    """Read YOLO label files; see `parse_yolo_labels` for the format.

    Args:
        index: the images.
        names: names of the classes; their numbers by default.
        label_of: returns the label file of an image; `yolo_label_path` by default.
    """
    builder = _LabelsBuilder(names)
    class_count = len(names) if names is not None else None
    for number in range(len(index)):
        if index.reason(number) is None:
            labels = parse_yolo_labels((label_of or yolo_label_path)(index.path(number)), class_count)
            builder.issues += [issue for issue in labels.issues if issue.dropped]
            size = index[number].display_size
            for label, corners in zip(labels.classes.tolist(), labels.corners.tolist(), strict=True):
                builder.add(label, tuple(corners), size)
        builder.next_image()
    return builder.build()


def yolo_label_path(image: str) -> str:
    """Return the YOLO label file of an image: the last folder "images" becomes "labels", and the suffix ".txt"."""
    path = Path(image)
    parts = list(path.parts)
    for position in range(len(parts) - 2, -1, -1):
        if parts[position] == "images":
            parts[position] = "labels"
            break
    return str(Path(*parts).with_suffix(".txt"))


def read_coco(file: Name, images: Name) -> tuple[ImageIndex, Labels]:
    """Read a COCO annotation file and index the images that it names.

    Args:
        file: the annotations.
        images: the folder that contains the images.

    Raises:
        MissingFile: the file does not exist.
        InvalidFile: it is not a COCO file.
    """
    data = _read_json(Path(file))
    try:
        file_names = {int(image["id"]): str(image["file_name"]) for image in data["images"]}
        categories = sorted((int(category["id"]), str(category["name"])) for category in data["categories"])
        annotations: dict[int, list[Any]] = {image: [] for image in file_names}
        for annotation in data["annotations"]:
            annotations.setdefault(int(annotation["image_id"]), []).append(annotation)
    except (KeyError, TypeError, ValueError):
        raise InvalidFile(
            f"{str(file)!r} is not a COCO file", "name a file with images, annotations and categories"
        ) from None
    index = ImageIndex.of(Path(images) / name for name in file_names.values())
    builder = _LabelsBuilder(tuple(name for _, name in categories))
    labels = {category: label for label, (category, _) in enumerate(categories)}
    for position, image in enumerate(file_names):
        if index.reason(position) is None:
            for annotation in annotations[image]:
                _add_coco_box(builder, annotation, labels, (str(file), index[position].display_size))
        builder.next_image()
    return index, builder.build()


def _add_coco_box(
    builder: _LabelsBuilder, annotation: Any, labels: dict[int, int], source: tuple[str, tuple[int, int]]
) -> None:
    file, size = source
    annotation_id = annotation.get("id", 0)
    place = (file, annotation_id if isinstance(annotation_id, int) else 0)
    try:
        left, top, width, height = (float(value) for value in annotation["bbox"])
        label = labels[int(annotation["category_id"])]
    except (KeyError, TypeError, ValueError):
        builder.issues.append(LabelIssue(*place, "no box, or an unknown category"))
        return
    corners = (left / size[0], top / size[1], (left + width) / size[0], (top + height) / size[1])
    builder.add_checked(label, corners, size, place)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise MissingFile(f"there is no file {str(path)!r}", "name the annotation file") from None
    except (OSError, ValueError, RecursionError):
        raise InvalidFile(f"{str(path)!r} is not a JSON file", "name the annotation file") from None


def read_classes(index: ImageIndex, folder: Name) -> Labels:
    """Read a folder with one subfolder per class: the subfolder names the class, and the box is the whole image.

    Raises:
        UsageError: no image is in a subfolder.
    """
    root = Path(folder)
    class_names = [_first_folder(root, index.path(number)) for number in range(len(index))]
    names = tuple(sorted({name for name in class_names if name is not None}))
    if not names:
        raise UsageError(
            f"there is no image in a subfolder of {str(root)!r}", "put the images of each class in a folder"
        )
    labels = {name: label for label, name in enumerate(names)}
    builder = _LabelsBuilder(names)
    for number, name in enumerate(class_names):
        if name is None:
            builder.issues.append(LabelIssue(index.path(number), 0, "not in the folder of a class"))
        elif index.reason(number) is None:
            builder.add(labels[name], (0, 0, 1, 1), index[number].display_size)
        builder.next_image()
    return builder.build()


def _first_folder(root: Path, path: str) -> str | None:
    try:
        parts = Path(path).relative_to(root).parts
    except ValueError:
        return None
    return parts[0] if len(parts) > 1 else None
