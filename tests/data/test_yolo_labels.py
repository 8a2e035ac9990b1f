from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from oomph.data import YoloLabels, parse_yolo_labels

VALID = "0 0.5 0.5 0.2 0.4\n1 0.25 0.25 0.1 0.1\n"


def parse(folder: Path, content: str | bytes, class_count: int | None = 2) -> YoloLabels:
    path = folder / "a.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return parse_yolo_labels(path, class_count)


def issues(labels: YoloLabels) -> list[tuple[int, str, bool, bool]]:
    return [(issue.line, issue.reason, issue.dropped, issue.broken) for issue in labels.issues]


def test_valid_labels_are_unchanged(tmp_path: Path) -> None:
    labels = parse(tmp_path, VALID)
    assert labels.classes.tolist() == [0, 1]
    assert labels.boxes.tolist() == [[0.5, 0.5, 0.2, 0.4], [0.25, 0.25, 0.1, 0.1]]
    assert np.allclose(labels.corners, [[0.4, 0.3, 0.6, 0.7], [0.2, 0.2, 0.3, 0.3]])
    assert labels.issues == ()
    assert labels.readable


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("0 0.5 0.5 0.2", "neither 5 values nor a polygon"),
        ("0 0.5 0.5 0.2 0.4 0.9", "neither 5 values nor a polygon"),
        ("zero 0.5 0.5 0.2 0.4", "a value is not a number"),
        ("0 nan 0.5 0.2 0.4", "a value is NaN or infinite"),
        ("inf 0.5 0.5 0.2 0.4", "a value is NaN or infinite"),
        ("2 0.5 0.5 0.2 0.4", "class not in 0 to 1"),
        ("-1 0.5 0.5 0.2 0.4", "class not in 0 to 1"),
        ("0.5 0.5 0.5 0.2 0.4", "class not in 0 to 1"),
        ("0 0.5 0.5 0 0.4", "zero width or height"),
        ("0 0.5 0.5 -0.1 0.4", "zero width or height"),
        ("0 1.5 0.5 0.1 0.4", "outside the image"),
        ("0 320 240 64 64", "in pixels, not in fractions of the image"),
    ],
)
def test_invalid_row_is_dropped_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    labels = parse(tmp_path, f"\n{row}\n{VALID}")
    assert issues(labels) == [(2, reason, True, True)]
    assert np.allclose(labels.boxes, [[0.5, 0.5, 0.2, 0.4], [0.25, 0.25, 0.1, 0.1]])


def test_any_class_is_valid_without_a_class_count(tmp_path: Path) -> None:
    labels = parse(tmp_path, "900 0.5 0.5 0.2 0.4\n-1 0.5 0.5 0.2 0.4\n", class_count=None)
    assert labels.classes.tolist() == [900]
    assert issues(labels) == [(2, "class is negative or not an integer", True, True)]


def test_polygons_overhanging_boxes_and_duplicates_are_corrected(tmp_path: Path) -> None:
    rows = (
        "0 0.95 0.5 0.2 0.4",
        "1 0.1 0.2 0.5 0.1 0.3 0.8",
        "1 0.5 0.5 0.1 0.1",
        "1 0.5 0.5 0.1 0.1",
        "0 0.5 0.5 1.000001 1",
    )
    labels = parse(tmp_path, "\n".join(rows))
    assert issues(labels) == [
        (1, "clipped at the edge of the image", False, False),
        (2, "converted from a polygon", False, False),
        (4, "listed twice: used once", True, False),
    ]
    assert labels.classes.tolist() == [0, 1, 1, 0]
    assert np.allclose(
        labels.boxes, [[0.925, 0.5, 0.15, 0.4], [0.3, 0.45, 0.4, 0.7], [0.5, 0.5, 0.1, 0.1], [0.5, 0.5, 1, 1]]
    )


def test_byte_order_mark_line_ends_and_odd_bytes(tmp_path: Path) -> None:
    labels = parse(tmp_path, b"\xef\xbb\xbf0 0.5\t0.5  0.2 0.4 \r\n\r\n\xff\xfe garbage\r\n")
    assert np.allclose(labels.boxes, [[0.5, 0.5, 0.2, 0.4]])
    assert issues(labels) == [(3, "a value is not a number", True, True)]


def test_missing_or_empty_file_is_an_image_without_objects(tmp_path: Path) -> None:
    missing, empty = parse_yolo_labels(tmp_path / "none.txt"), parse(tmp_path, " \n\n")
    assert issues(missing) == [(0, "missing: an image without objects", False, False)]
    assert issues(empty) == [(0, "empty: an image without objects", False, False)]
    assert len(missing.boxes) == len(empty.boxes) == 0
    assert missing.readable
    assert empty.readable


def test_unreadable_file_is_not_an_image_without_objects(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")  # reading it would block
    (tmp_path / "large.txt").write_bytes(b" " * (16 * 2**20 + 1))
    for path in (tmp_path, tmp_path / "pipe.txt", tmp_path / "large.txt"):
        labels = parse_yolo_labels(path)
        assert not labels.readable
        assert issues(labels) == [(0, "not a regular file, or larger than 16 MiB", True, True)]
