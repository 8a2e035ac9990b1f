from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oomph.data import ImageIndex, LabeledSamples, Loader, read_classes, read_coco, read_yolo, yolo_label_path
from oomph.errors import InvalidFile, MissingFile, UsageError


def yolo_folder(root: Path, labels: dict[str, str | None]) -> ImageIndex:
    """Save 200×100 images with YOLO labels."""
    (root / "images" / "train").mkdir(parents=True)
    (root / "labels" / "train").mkdir(parents=True)
    for name, text in labels.items():
        Image.new("RGB", (200, 100)).save(root / "images" / "train" / f"{name}.png")
        if text is not None:
            (root / "labels" / "train" / f"{name}.txt").write_text(text, encoding="utf-8")
    return ImageIndex.open(root / "images")


def test_yolo_labels_in_pixels(tmp_path: Path) -> None:
    index = yolo_folder(
        tmp_path,
        {
            "a": "0 0.5 0.5 0.2 0.4\n1 0.1 0.1 0.4 0.4\n",
            "b": None,
            "c": "",
            "d": "0 0.5 0.5 0.2 0.4\n0 0.5 0.5 0.2 0.4\n7 0.5 0.5 0.1 0.1\nhello\n",
            "e": "1 0.1 0.2 0.5 0.2 0.5 0.9 0.1 0.9\n",
            "f": "\ufeff1 0.5 0.5 0.5 0.5\n",
        },
    )
    labels = read_yolo(index, ("cat", "dog"))
    assert np.diff(labels.offsets).tolist() == [2, 0, 0, 1, 1, 1]
    classes, boxes = labels.of(0)
    assert classes.tolist() == [0, 1]
    assert np.allclose(boxes, [[80, 30, 120, 70], [0, 0, 60, 30]])  # the second is clipped
    assert np.allclose(labels.of(4)[1], [[20, 20, 100, 90]])  # a polygon
    assert np.allclose(labels.of(5)[1], [[50, 25, 150, 75]])  # after a byte-order mark
    assert [(Path(issue.path).name, issue.line, issue.reason) for issue in labels.issues] == [
        ("d.txt", 2, "listed twice: used once"),
        ("d.txt", 3, "class not in 0 to 1"),
        ("d.txt", 4, "a value is not a number"),
    ]
    assert read_yolo(index).names == tuple(map(str, range(8)))


def test_labeled_samples_move_boxes_to_the_canvas(tmp_path: Path) -> None:
    index = yolo_folder(tmp_path, {"a": "0 0.5 0.5 0.5 0.5\n", "b": ""})
    (batch,) = Loader(index, 100, 2, builder=LabeledSamples(read_yolo(index)), collate=list)
    first, second = batch.targets
    assert (first.index, first.boxes.tolist()) == (0, [[25, 37.5, 75, 62.5]])
    assert len(second.boxes) == 0


def test_yolo_label_replaces_the_last_images_folder() -> None:
    assert yolo_label_path("/images/set/images/a b/x.y.jpg") == "/images/set/labels/a b/x.y.txt"
    assert yolo_label_path("/pictures/x.jpg") == "/pictures/x.txt"


def coco_file(root: Path, **changes: object) -> Path:
    Image.new("RGB", (200, 100)).save(root / "one.png")
    Image.new("RGB", (50, 50)).save(root / "two.png")
    data: dict[str, object] = {
        "images": [
            {"id": 7, "file_name": "one.png"},
            {"id": 3, "file_name": "two.png"},
            {"id": 4, "file_name": "missing.png"},
        ],
        "categories": [{"id": 20, "name": "dog"}, {"id": 5, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 20, "bbox": [10, 20, 30, 40]},
            {"id": 2, "image_id": 3, "category_id": 5, "bbox": [0, 0, 50, 50]},
            {"id": 3, "image_id": 3, "category_id": 99, "bbox": [0, 0, 5, 5]},
            {"id": 4, "image_id": 4, "category_id": 5, "bbox": [0, 0, 5, 5]},
            {"id": 5, "image_id": 3, "category_id": 5, "bbox": [0, 0, 50, 50]},
            {"id": 6, "image_id": 3, "category_id": 5, "bbox": [60, 0, 5, 5]},
            {"id": 7, "image_id": 3, "category_id": 5, "bbox": [0, 0, float("nan"), 5]},
        ],
        **changes,
    }
    (root / "annotations.json").write_text(json.dumps(data))
    return root / "annotations.json"


def test_coco_annotations(tmp_path: Path) -> None:
    index, labels = read_coco(coco_file(tmp_path), tmp_path)
    assert labels.names == ("cat", "dog")
    assert [Path(path).name for path in index.paths()] == ["one.png", "two.png", "missing.png"]
    assert labels.of(0)[0].tolist() == [1]
    assert labels.of(0)[1].tolist() == [[10, 20, 40, 60]]
    assert labels.of(1)[1].tolist() == [[0, 0, 50, 50]]
    assert labels.of(2)[0].tolist() == []
    assert [(issue.line, issue.reason) for issue in labels.issues] == [
        (3, "no box, or an unknown category"),
        (5, "listed twice: used once"),
        (6, "zero width or height, or outside the image"),
        (7, "a value is NaN or infinite"),
    ]


def test_file_that_is_not_coco_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        read_coco(tmp_path / "no.json", tmp_path)
    (tmp_path / "text.json").write_text("hello")
    with pytest.raises(InvalidFile, match="not a JSON file"):
        read_coco(tmp_path / "text.json", tmp_path)
    with pytest.raises(InvalidFile, match="not a COCO file"):
        read_coco(coco_file(tmp_path, annotations=[{}]), tmp_path)


def test_folders_name_classes(tmp_path: Path) -> None:
    for name in ("dog/x/1.png", "cat/1.png", "cat/2.png", "stray.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10)).save(tmp_path / name)
    index = ImageIndex.open(tmp_path)
    labels = read_classes(index, tmp_path)
    assert labels.names == ("cat", "dog")
    assert [labels.of(number)[0].tolist() for number in range(4)] == [[0], [0], [1], []]
    assert labels.of(0)[1].tolist() == [[0, 0, 20, 10]]
    assert [Path(issue.path).name for issue in labels.issues] == ["stray.png"]
    with pytest.raises(UsageError, match="there is no image in a subfolder"):
        read_classes(index.select([3]), tmp_path)
