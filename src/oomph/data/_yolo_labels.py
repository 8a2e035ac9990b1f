"""Parser for YOLO label files: one object per line, as a class and a box or a polygon."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_BOX_COLUMNS = 5  # class, center x, center y, width, height
_MIN_POLYGON_COLUMNS = 7  # class and three points
_MAX_FRACTION = 2.0  # larger coordinates are pixels, not inaccurate fractions
_CLIP_TOLERANCE = 0.01  # of the image; boxes that exceed it by less are clipped without an issue
_MAX_FILE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class LabelIssue:
    """A problem with a label or with a label file.

    Attributes:
        path: the file.
        line: the line of the label, or the id of a COCO annotation; 0 for the whole file.
        reason: what is wrong, in words.
        dropped: the label is not in the result. False if it was corrected, or if nothing was lost.
        broken: the label is invalid. False for duplicates, corrections and images without labels.
    """

    path: str
    line: int
    reason: str
    dropped: bool = True
    broken: bool = True


@dataclass(frozen=True, eq=False)
class YoloLabels:
    """The valid labels of an image.

    Attributes:
        classes: class of each object.
        boxes: (objects, 4): center x, center y, width and height as fractions of the image, clipped to it.
        issues: labels that were dropped or corrected, by line.
        readable: False if the file exists but can't be read, so that the objects of the image are unknown.
    """

    classes: NDArray[np.int64]
    boxes: NDArray[np.float64]
    issues: tuple[LabelIssue, ...] = ()
    readable: bool = True

    @property
    def corners(self) -> NDArray[np.float64]:
        """Boxes as left, top, right, bottom."""
        center, half = self.boxes[:, :2], self.boxes[:, 2:] / 2
        return np.concatenate((center - half, center + half), 1)


def parse_yolo_labels(path: str | os.PathLike[str], class_count: int | None = None) -> YoloLabels:
    """Parse a YOLO label file; invalid labels become issues and don't raise.

    A line holds a class and a box (center x, center y, width, height) or a polygon, as fractions of the image. A
    polygon becomes its bounding box, boxes are clipped to the image, and duplicates are dropped. A missing or empty
    file stands for an image without objects.

    Args:
        path: the label file.
        class_count: number of classes; any non-negative integer is a valid class by default.
    """
    name = os.fspath(path)
    text, issue = _read_text(name)
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if issue is None and not lines:
        issue = _note(name, 0, "empty: an image without objects", dropped=False)
    if issue is not None:
        return YoloLabels(np.zeros(0, np.int64), np.zeros((0, 4)), (issue,), readable=not issue.broken)
    issues: list[LabelIssue] = []
    numbers, rows = _parse_lines(name, lines, class_count, issues)
    rows = _drop_duplicates(name, numbers, rows, issues)
    issues.sort(key=lambda issue: issue.line)
    return YoloLabels(rows[:, 0].astype(np.int64), rows[:, 1:], tuple(issues))


def _note(path: str, line: int, reason: str, *, dropped: bool) -> LabelIssue:
    return LabelIssue(path, line, reason, dropped=dropped, broken=False)


def _read_text(path: str) -> tuple[str, LabelIssue | None]:
    try:
        status = os.stat(path)  # noqa: PTH116  called for every label file of a dataset
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:  # reading a pipe would block
            return "", LabelIssue(path, 0, "not a regular file, or larger than 16 MiB")
        # utf-8-sig drops a byte-order mark, which would turn the first class into a word.
        return Path(path).read_text(encoding="utf-8-sig", errors="replace"), None
    except FileNotFoundError:
        return "", _note(path, 0, "missing: an image without objects", dropped=False)
    except OSError as error:
        return "", LabelIssue(path, 0, f"can't be read: {error.strerror}")


def _parse_lines(
    path: str, lines: list[tuple[int, list[str]]], class_count: int | None, issues: list[LabelIssue]
) -> tuple[list[int], NDArray[np.float64]]:
    """Return the line numbers and rows (class and box) of the valid labels."""
    try:
        table = np.array([words for _, words in lines], dtype=np.float64)
    except ValueError:
        table = np.zeros((0, 0))
    if table.shape == (len(lines), _BOX_COLUMNS) and _all_valid(table, class_count):
        return [number for number, _ in lines], table
    numbers, rows = [], []
    for number, words in lines:
        row = _parse_line(path, number, words, class_count, issues)
        if row is not None:
            numbers.append(number)
            rows.append(row)
    return numbers, np.array(rows).reshape(-1, _BOX_COLUMNS)


def _all_valid(table: NDArray[np.float64], class_count: int | None) -> bool:
    classes, center, size = table[:, 0], table[:, 1:3], table[:, 3:5]
    return bool(
        np.isfinite(table).all()
        and (classes == np.floor(classes)).all()
        and (classes >= 0).all()
        and (class_count is None or (classes < class_count).all())
        and (size > 0).all()
        and (center - size / 2 >= 0).all()
        and (center + size / 2 <= 1).all()
    )


class _InvalidLabel(Exception):
    """A line that is not a valid label; its argument is the reason."""


def _parse_line(
    path: str, number: int, words: Sequence[str], class_count: int | None, issues: list[LabelIssue]
) -> NDArray[np.float64] | None:
    """Parse one line to a class and a box; None if it is invalid."""
    try:
        values = _parse_values(words, class_count)
        low, high = _corners(values)
        clipped_low, clipped_high = _clip(low, high)
    except _InvalidLabel as error:
        issues.append(LabelIssue(path, number, str(error)))
        return None
    if len(values) > _BOX_COLUMNS:
        issues.append(_note(path, number, "converted from a polygon", dropped=False))
    if max((clipped_low - low).max(), (high - clipped_high).max()) > _CLIP_TOLERANCE:
        issues.append(_note(path, number, "clipped at the edge of the image", dropped=False))
    return np.concatenate((values[:1], (clipped_low + clipped_high) / 2, clipped_high - clipped_low))


def _parse_values(words: Sequence[str], class_count: int | None) -> NDArray[np.float64]:
    try:
        values = np.array([float(word) for word in words])
    except ValueError:
        raise _InvalidLabel("a value is not a number") from None
    if not np.isfinite(values).all():
        raise _InvalidLabel("a value is NaN or infinite")
    is_polygon = len(values) >= _MIN_POLYGON_COLUMNS and len(values) % 2 == 1
    if len(values) != _BOX_COLUMNS and not is_polygon:
        raise _InvalidLabel("neither 5 values nor a polygon")
    limit = np.inf if class_count is None else class_count
    if values[0] != np.floor(values[0]) or not 0 <= values[0] < limit:
        raise _InvalidLabel(
            "class is negative or not an integer" if class_count is None else f"class not in 0 to {class_count - 1}"
        )
    if np.abs(values[1:]).max() > _MAX_FRACTION:
        raise _InvalidLabel("in pixels, not in fractions of the image")
    return values


def _corners(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if len(values) > _BOX_COLUMNS:
        points = values[1:].reshape(-1, 2)
        return points.min(0), points.max(0)
    return values[1:3] - values[3:5] / 2, values[1:3] + values[3:5] / 2


def _clip(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if (high <= low).any():
        raise _InvalidLabel("zero width or height")
    clipped_low, clipped_high = low.clip(0, 1), high.clip(0, 1)
    if (clipped_high <= clipped_low).any():
        raise _InvalidLabel("outside the image")
    return clipped_low, clipped_high


def _drop_duplicates(
    path: str, numbers: list[int], rows: NDArray[np.float64], issues: list[LabelIssue]
) -> NDArray[np.float64]:
    """Keep the first of equal rows, in the order of the file."""
    _, first = np.unique(rows, axis=0, return_index=True)
    if len(first) == len(rows):
        return rows
    duplicates = sorted(set(range(len(rows))) - set(first.tolist()))
    issues += [_note(path, numbers[row], "listed twice: used once", dropped=True) for row in duplicates]
    return rows[np.sort(first)]
