from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from oomph.detect import LabelTable, label_path
from oomph.detect.dataset._issues import IssueLog
from oomph.detect.dataset._labels import read_labels

GOOD = "0 0.5 0.5 0.2 0.4\n1 0.25 0.25 0.1 0.1\n"


def read(folder: Path, *texts: str | bytes | None) -> tuple[LabelTable, list[int], dict[str, int]]:
    """Read label files with these contents; None is a missing file."""
    files = []
    for number, text in enumerate(texts):
        file = folder / f"{number}.txt"
        if text is not None:
            file.write_bytes(text.encode() if isinstance(text, str) else text)
        files.append(file)
    log = IssueLog()
    labels, usable = read_labels(files, 2, [folder.resolve()], log)
    return labels, usable, {f"{issue.subject}: {issue.problem}": issue.count for issue in log.summary()}


ROWS = {
    "0 0.5 0.5 0.2": "neither 5 values nor a polygon",
    "0 0.5 0.5 0.2 0.4 0.9": "neither 5 values nor a polygon",
    "zero 0.5 0.5 0.2 0.4": "a value is not a number",
    "0 nan 0.5 0.2 0.4": "a value is NaN or infinite",
    "2 0.5 0.5 0.2 0.4": "class not in 0 to 1",
    "-1 0.5 0.5 0.2 0.4": "class not in 0 to 1",
    "0.5 0.5 0.5 0.2 0.4": "class not in 0 to 1",
    "0 0.5 0.5 0 0.4": "zero width or height",
    "0 0.5 0.5 -0.1 0.4": "zero width or height",
    "0 1.5 0.5 0.1 0.4": "outside the image",
    "0 320 240 64 64": "in pixels, not in fractions of the image",
}


@pytest.mark.parametrize(("row", "problem"), ROWS.items())
def test_an_invalid_row_is_skipped(tmp_path: Path, row: str, problem: str) -> None:
    labels, usable, issues = read(tmp_path, f"{row}\n{GOOD}", GOOD)
    assert issues == {f"box: {problem}": 1}
    assert usable == [0, 1]
    assert np.allclose(labels.of(0), labels.of(1))


def test_boxes_are_clipped_polygons_converted_and_duplicates_removed(tmp_path: Path) -> None:
    label = (
        "0 0.95 0.5 0.2 0.4\n1 0.1 0.2 0.5 0.1 0.3 0.8\n1 0.5 0.5 0.1 0.1\n1 0.5 0.5 0.1 0.1\n0 0.5 0.5 1.000001 1\n"
    )
    labels, _, issues = read(tmp_path, label)
    assert issues == {
        "box: clipped at the edge of the image": 1,
        "box: converted from a polygon": 1,
        "box: listed twice: used once": 1,
    }
    expected = [[0, 0.925, 0.5, 0.15, 0.4], [1, 0.3, 0.45, 0.4, 0.7], [1, 0.5, 0.5, 0.1, 0.1], [0, 0.5, 0.5, 1, 1]]
    assert np.allclose(labels.of(0), expected)


def test_missing_and_empty_files_are_images_without_objects(tmp_path: Path) -> None:
    labels, usable, issues = read(tmp_path, GOOD, " \n", None)
    assert [len(labels.of(index)) for index in range(3)] == [2, 0, 0]
    assert usable == [0, 1, 2]
    assert issues == {"image: have no objects": 1, "image: have no label file: used as background": 1}


def test_odd_bytes_are_tolerated(tmp_path: Path) -> None:
    labels, _, issues = read(tmp_path, b"\xef\xbb\xbf0 0.5 0.5 0.2 0.4\r\n\xff\xfe garbage\r\n")
    assert len(labels.of(0)) == 1
    assert issues == {"box: a value is not a number": 1}


def test_images_with_unreadable_label_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "0.txt").mkdir()
    os.mkfifo(tmp_path / "1.txt")  # opening it would block
    (tmp_path / "elsewhere.txt").write_text(GOOD)
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
    log = IssueLog()
    files = [tmp_path / "0.txt", tmp_path / "1.txt", folder / "link.txt", tmp_path / "elsewhere.txt"]
    _, usable = read_labels(files[:2] + files[3:], 2, [tmp_path.resolve()], log)
    assert usable == [2]
    assert log.broken("label file") == 2
    _, usable = read_labels([files[2]], 2, [folder.resolve()], log)
    assert usable == []


def test_label_path_replaces_the_last_images_folder() -> None:
    assert label_path(Path("/d/images/a/b.c.jpg")) == Path("/d/labels/a/b.c.txt")
    assert label_path(Path("/images/x/images/a.jpg")) == Path("/images/x/labels/a.txt")
    assert label_path(Path("/d/photos/a.jpg")) == Path("/d/photos/a.txt")
    assert label_path(Path("/d/images.jpg")) == Path("/d/images.txt")


def test_box_sizes_are_those_that_the_network_sees() -> None:
    labels = LabelTable(np.array([[0, 0.5, 0.5, 0.5, 0.1]] * 3, dtype=np.float32), np.array([0, 1, 3]))
    shapes = [(100, 200), (1000, 500)]
    sizes = labels.box_sizes(shapes, 640)
    assert sizes.tolist() == [pytest.approx([320, 32]), pytest.approx([160, 64]), pytest.approx([160, 64])]
    tiled = labels.box_sizes(shapes, 640, tile=320)
    assert tiled.tolist() == [pytest.approx([320, 32]), pytest.approx([500, 200]), pytest.approx([500, 200])]
