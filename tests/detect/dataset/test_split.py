from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oomph.detect import Dataset, Split, as_single_cls, read_dataset, read_split, shared_images
from oomph.errors import UsageError

GOOD = "0 0.5 0.5 0.2 0.4\n1 0.25 0.25 0.1 0.1\n"
OUTSIDE = "outside the folders that the yaml names; add `roots: [/that/folder]` to it"


def write(file: Path, text: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def write_images(folder: Path, *names: str) -> None:
    for name in names:
        write(folder / name)


def dataset(folder: Path, text: str) -> Dataset:
    return read_dataset(write(folder / "data.yaml", text))


def simple_dataset(folder: Path, label: str = GOOD) -> Dataset:
    write_images(folder / "images/train", "a.jpg", "b.PNG")
    write(folder / "labels/train/a.txt", label)
    write(folder / "labels/train/b.txt", GOOD)
    return dataset(folder, "train: images/train\nval: images/train\nnames: [cat, dog]\n")


def names(split: Split) -> list[str]:
    return [image.name for image in split.images]


def issues(split: Split) -> dict[str, int]:
    return {f"{issue.subject}: {issue.problem}": issue.count for issue in split.issues}


def test_a_split_has_images_and_labels(tmp_path: Path) -> None:
    split = read_split(simple_dataset(tmp_path), "train")
    assert names(split) == ["a.jpg", "b.PNG"]
    assert len(split.labels) == 2
    assert np.allclose(split.labels.of(0), [[0, 0.5, 0.5, 0.2, 0.4], [1, 0.25, 0.25, 0.1, 0.1]])
    assert split.labels.counts(2).tolist() == [2, 2]
    assert split.issues == ()


def test_shared_images_are_counted(tmp_path: Path) -> None:
    data = simple_dataset(tmp_path)
    assert shared_images(read_split(data, "train"), read_split(data, "val")) == 2


def test_absolute_paths_lists_and_text_files(tmp_path: Path) -> None:
    write_images(tmp_path / "one/images", "a.jpg")
    write_images(tmp_path / "two/images", "b.jpg", "c d.jpg", "notes.md")
    write(tmp_path / "two/labels/b.txt", "0 0.5 0.5 0.1 0.1\n")
    lines = ["./images/b.jpg", "", "# a comment", str(tmp_path / "two/images/c d.jpg"), "images\\b.jpg"]
    write(tmp_path / "two/train.txt", "\n".join([*lines, "images/none.jpg", "images/notes.md"]))
    data = dataset(tmp_path / "yaml", f"train: [{tmp_path / 'one/images'}, {tmp_path / 'two/train.txt'}]\nnames: [a]")
    split = read_split(data, "train", max_broken_fraction=0.5)
    assert names(split) == ["a.jpg", "b.jpg", "c d.jpg"]
    assert len(split.labels.of(1)) == 1
    assert issues(split) == {
        "image: listed but missing": 1,
        "image: listed but not an image file": 1,
        "image: listed twice: used once": 1,
        "image: have no label file: used as background": 2,
    }


def test_too_many_broken_items_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"2 of 4 boxes in .*; most frequent reason: class not in 0 to 1"):
        read_split(simple_dataset(tmp_path, "7 0.5 0.5 0.1 0.1\n8 0.5 0.5 0.1 0.1\n"), "train")
    write(tmp_path / "train.txt", "no.jpg\nnope.jpg\nimages/train/a.jpg\n")
    with pytest.raises(UsageError, match=r"2 of 3 images in .* listed but missing \(first: .*train\.txt:1 'no\.jpg'"):
        read_split(dataset(tmp_path, "train: train.txt\nnames: [a, b]"), "train")


def test_a_broken_label_file_leaves_its_image_out(tmp_path: Path) -> None:
    data = simple_dataset(tmp_path)
    (tmp_path / "labels/train/a.txt").unlink()
    (tmp_path / "labels/train/a.txt").mkdir()
    split = read_split(data, "train", max_broken_fraction=0.5)
    assert names(split) == ["b.PNG"]
    assert np.allclose(split.labels.of(0), [[0, 0.5, 0.5, 0.2, 0.4], [1, 0.25, 0.25, 0.1, 0.1]])
    with pytest.raises(UsageError, match=r"1 of 2 label files in .* can't be used"):
        read_split(data, "train")


def test_a_split_without_images_or_name_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    data = dataset(tmp_path, "train: images\nnames: [a]")
    with pytest.raises(UsageError, match="has no images"):
        read_split(data, "train")
    with pytest.raises(UsageError, match="names no test images"):
        read_split(data, "test")


def test_links_to_images_and_lists_of_absolute_paths_are_accepted(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    write_images(pool / "images", "a.jpg", "b.jpg")
    write(pool / "labels/b.txt", GOOD)
    folder = tmp_path / "set"
    (folder / "images").mkdir(parents=True)
    (folder / "images/a.jpg").symlink_to(pool / "images/a.jpg")
    write(folder / "labels/a.txt", GOOD)
    write(folder / "list.txt", f"{pool / 'images/b.jpg'}\n")
    split = read_split(dataset(folder, "train: [images, list.txt]\nnames: [a, b]"), "train")
    assert names(split) == ["a.jpg", "b.jpg"]
    assert split.issues == ()
    assert len(split.labels.boxes) == 4


def test_linked_labels_and_folders_outside_of_the_roots_are_skipped(tmp_path: Path) -> None:
    hidden = write(tmp_path / "elsewhere/secret.txt", GOOD)
    write_images(tmp_path / "elsewhere", "c.jpg", "d.jpg")
    folder = tmp_path / "set"
    write_images(folder / "images/train", "a.jpg", "b.jpg")
    (folder / "labels/train").mkdir(parents=True)
    (folder / "labels/train/a.txt").symlink_to(hidden)
    write(folder / "labels/train/b.txt", GOOD)
    (folder / "images/train/more").symlink_to(tmp_path / "elsewhere")
    (folder / "images/loop").symlink_to(folder / "images")
    yaml = "train: images/train\nnames: [a, b]"
    split = read_split(dataset(folder, yaml), "train", max_broken_fraction=0.9)
    assert names(split) == ["b.jpg"]  # a's label is unknown, so it can't be used as background
    assert issues(split) == {f"image: in a linked folder {OUTSIDE}": 2, f"label file: {OUTSIDE}": 1}
    assert len(split.labels) == 1
    assert len(split.labels.boxes) == 2
    with pytest.raises(UsageError, match=r"2 of 4 images in .*; add `roots: \[/that/folder\]` to it"):
        read_split(dataset(folder, yaml), "train")
    allowed = read_split(dataset(folder, f"{yaml}\nroots: {tmp_path / 'elsewhere'}"), "train")
    assert names(allowed) == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert len(allowed.labels.of(0)) == 2


def test_a_linked_folder_that_the_yaml_names_is_accepted(tmp_path: Path) -> None:
    write_images(tmp_path / "pool/images", "a.jpg")
    write(tmp_path / "pool/labels/a.txt", GOOD)
    (tmp_path / "set").mkdir()
    (tmp_path / "set/images").symlink_to(tmp_path / "pool/images")
    (tmp_path / "set/labels").symlink_to(tmp_path / "pool/labels")
    split = read_split(dataset(tmp_path / "set", "train: images\nnames: [a, b]"), "train")
    assert len(split.labels.boxes) == 2


def test_loops_of_links_and_broken_links(tmp_path: Path) -> None:
    write_images(tmp_path / "images", "a.jpg")
    (tmp_path / "images/again").symlink_to(tmp_path / "images")
    (tmp_path / "images/dead.jpg").symlink_to(tmp_path / "images/nowhere.jpg")
    split = read_split(dataset(tmp_path, "train: images\nnames: [a]"), "train", max_broken_fraction=0.6)
    assert names(split) == ["a.jpg"]
    assert issues(split)["image: broken link"] == 1


def test_all_classes_can_be_merged_into_one(tmp_path: Path) -> None:
    data = simple_dataset(tmp_path)
    splits = read_split(data, "train"), read_split(data, "val")
    merged, (train, _) = as_single_cls(data, splits)
    assert merged.names == ("item",)
    assert train.labels.boxes[:, 0].tolist() == [0, 0, 0, 0]
    assert np.array_equal(train.labels.boxes[:, 1:], splits[0].labels.boxes[:, 1:])
    assert splits[0].labels.boxes[:, 0].max() == 1
    assert as_single_cls(merged, splits) == (merged, splits)
