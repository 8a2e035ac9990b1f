from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from oomph.detect import DataSet, Split, as_one_class, label_path, read_dataset, read_split, shared_images
from oomph.errors import MissingFile, UsageError


def put(file: Path, text: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def images(folder: Path, *names: str) -> None:
    for name in names:
        put(folder / name)


def data(folder: Path, text: str) -> DataSet:
    return read_dataset(put(folder / "data.yaml", text))


def told(split: Split) -> dict[str, int]:
    return {f"{one.what}: {one.why}": one.count for one in split.set_aside}


GOOD = "0 0.5 0.5 0.2 0.4\n1 0.25 0.25 0.1 0.1\n"


def simple(folder: Path, label: str = GOOD, more: str = "") -> DataSet:
    images(folder / "images/train", "a.jpg", "b.PNG")
    put(folder / "labels/train/a.txt", label)
    put(folder / "labels/train/b.txt", GOOD)
    return data(folder, f"train: images/train\nval: images/train\nnames: [cat, dog]\n{more}")


def test_a_usual_data_set(tmp_path: Path) -> None:
    found = simple(tmp_path)
    assert found.names == ("cat", "dog")
    split = read_split(found, "train")
    assert [image.name for image in split.images] == ["a.jpg", "b.PNG"]
    assert len(split.labels) == 2
    assert np.allclose(split.labels.of(0), [[0, 0.5, 0.5, 0.2, 0.4], [1, 0.25, 0.25, 0.1, 0.1]])
    assert split.labels.counts(2).tolist() == [2, 2]
    assert split.set_aside == ()


def test_train_that_is_val_is_noticed(tmp_path: Path) -> None:
    found = simple(tmp_path)
    assert shared_images(read_split(found, "train"), read_split(found, "val")) == 2


@pytest.mark.parametrize(
    "names", ["names: {0: cat, 1: dog}", "names:\n  '1': dog\n  '0': cat", "nc: 2\nnames: [cat, dog]"]
)
def test_names_are_a_list_or_a_map(tmp_path: Path, names: str) -> None:
    images(tmp_path / "images", "a.jpg")
    assert data(tmp_path, f"train: images\nval: images\n{names}").names == ("cat", "dog")


def test_names_that_yaml_takes_for_something_else_stay_names(tmp_path: Path) -> None:
    images(tmp_path / "images", "a.jpg")
    assert data(tmp_path, "train: images\nnames: [1, 2.5, no]").names == ("1", "2.5", "False")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("names: [a]", "names neither train nor val"),
        ("train: images", "has no names of classes"),
        ("train: images\nnames: {0: a, 2: b}", "without a gap"),
        ("train: images\nnames: [a]\nnc: 3", "says nc: 3 and names 1"),
        ("train: 5\nnames: [a]", "has 5 as train"),
        ("train: images\nnames: [a]\npath: 7", "has 7 as path"),
        ("- a", "holds list and no names"),
        ("a: [", "is no yaml"),
        ("train: !!python/object/apply:os.system ['touch mark']\nnames: [a]", "is no yaml"),
    ],
)
def test_a_yaml_that_says_too_little_gets_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    images(tmp_path / "images", "a.jpg")
    with pytest.raises(UsageError, match=words):
        data(tmp_path, text)


def test_a_missing_folder_is_named_and_download_is_quoted_but_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(MissingFile) as caught:
        data(tmp_path, f"train: images\nnames: [a]\ndownload: |\n  touch {mark}\n")
    assert "the train images of" in str(caught.value)
    assert f"its `download:` says 'touch {mark}'"[:60] in str(caught.value)
    assert "never runs" in str(caught.value)
    assert not mark.exists()
    with pytest.raises(MissingFile, match="no file"):
        read_dataset(tmp_path / "none.yaml")


def test_path_is_relative_to_the_yaml_or_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images(tmp_path / "datasets/x y/images/ä", "ö.jpg")
    text = "path: ../datasets/x y\ntrain: images/ä\nnames: [a]"
    split = read_split(data(tmp_path / "project", text), "train")
    assert [image.name for image in split.images] == ["ö.jpg"]
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert data(tmp_path / "far/away", text).root == (tmp_path / "datasets/x y").resolve()


def test_absolute_paths_lists_and_text_files(tmp_path: Path) -> None:
    images(tmp_path / "one/images", "a.jpg")
    images(tmp_path / "two/images", "b.jpg", "c d.jpg")
    put(tmp_path / "two/labels/b.txt", "0 0.5 0.5 0.1 0.1\n")
    listed = f"./images/b.jpg\n\n# a comment\n{tmp_path / 'two/images/c d.jpg'}\nimages\\b.jpg\nimages/none.jpg\n"
    put(tmp_path / "two/train.txt", listed)
    found = data(tmp_path / "yaml", f"train: [{tmp_path / 'one/images'}, {tmp_path / 'two/train.txt'}]\nnames: [a]")
    split = read_split(found, "train", tolerated=0.5)
    assert [image.name for image in split.images] == ["a.jpg", "b.jpg", "c d.jpg"]
    assert len(split.labels.of(1)) == 1
    assert told(split) == {
        "image: listed, but not there": 1,
        "image: listed twice": 1,
        "label file: not there: an image with nothing to find": 2,
    }


ROWS = {
    "0 0.5 0.5 0.2": "box: with neither 5 numbers nor the corners of a polygon",
    "0 0.5 0.5 0.2 0.4 0.9": "box: with neither 5 numbers nor the corners of a polygon",
    "zero 0.5 0.5 0.2 0.4": "box: not made of numbers",
    "0 nan 0.5 0.2 0.4": "box: with a number that isn't finite",
    "2 0.5 0.5 0.2 0.4": "box: of a class that isn't one of 0 to 1",
    "-1 0.5 0.5 0.2 0.4": "box: of a class that isn't one of 0 to 1",
    "0.5 0.5 0.5 0.2 0.4": "box: of a class that isn't one of 0 to 1",
    "0 0.5 0.5 0 0.4": "box: of no size",
    "0 0.5 0.5 -0.1 0.4": "box: of no size",
    "0 1.5 0.5 0.1 0.4": "box: outside the image",
    "0 320 240 64 64": "box: in pixels and not in fractions of the image",
}


@pytest.mark.parametrize(("row", "why"), ROWS.items())
def test_a_bad_row_is_set_aside_and_told_with_its_place(tmp_path: Path, row: str, why: str) -> None:
    split = read_split(simple(tmp_path, f"{row}\n{GOOD}"), "train", tolerated=0.5)
    assert told(split) == {why: 1}
    assert split.set_aside[0].broken
    assert split.set_aside[0].examples[0].endswith("a.txt:1")
    assert np.allclose(split.labels.of(0), split.labels.of(1))


def test_boxes_over_the_edge_are_cut_polygons_become_boxes_duplicates_go(tmp_path: Path) -> None:
    label = (
        "0 0.95 0.5 0.2 0.4\n1 0.1 0.2 0.5 0.1 0.3 0.8\n1 0.5 0.5 0.1 0.1\n1 0.5 0.5 0.1 0.1\n0 0.5 0.5 1.000001 1\n"
    )
    split = read_split(simple(tmp_path, label), "train")
    assert told(split) == {
        "box: made from the corners of a polygon": 1,
        "box: partly outside the image: cut at its edge": 1,
        "box: written twice": 1,
    }
    assert not any(one.broken for one in split.set_aside)
    expected = [[0, 0.925, 0.5, 0.15, 0.4], [1, 0.3, 0.45, 0.4, 0.7], [1, 0.5, 0.5, 0.1, 0.1], [0, 0.5, 0.5, 1, 1]]
    assert np.allclose(split.labels.of(0), expected)


def test_missing_and_empty_labels_are_images_with_nothing_to_find(tmp_path: Path) -> None:
    images(tmp_path / "images/train", "a.jpg", "b.jpg", "c.jpg")
    put(tmp_path / "labels/train/a.txt", GOOD)
    put(tmp_path / "labels/train/b.txt", " \n")
    split = read_split(data(tmp_path, "train: images/train\nnames: [a, b]"), "train")
    assert [len(split.labels.of(index)) for index in range(3)] == [2, 0, 0]
    assert sum(told(split).values()) == 2


def test_labels_with_odd_bytes_are_survived(tmp_path: Path) -> None:
    found = simple(tmp_path)
    (tmp_path / "labels/train/a.txt").write_bytes(b"\xef\xbb\xbf0 0.5 0.5 0.2 0.4\r\n\xff\xfe garbage\r\n")
    split = read_split(found, "train", tolerated=0.5)
    assert len(split.labels.of(0)) == 1
    assert told(split) == {"box: not made of numbers": 1}


def test_too_much_that_is_broken_stops_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"2 of 4 boxes of .* most of them because: of a class that isn't one of 0 to 1"
    ):
        read_split(simple(tmp_path, "7 0.5 0.5 0.1 0.1\n8 0.5 0.5 0.1 0.1\n"), "train")
    put(tmp_path / "train.txt", "no.jpg\nnope.jpg\nimages/train/a.jpg\n")
    with pytest.raises(UsageError, match=r"2 of 3 images of .* listed, but not there .*train\.txt:1 'no\.jpg'"):
        read_split(data(tmp_path, "train: train.txt\nnames: [a, b]"), "train")


def test_a_split_without_images_or_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    found = data(tmp_path, "train: images\nnames: [a]")
    with pytest.raises(UsageError, match="has no images"):
        read_split(found, "train")
    with pytest.raises(UsageError, match="names no test images"):
        read_split(found, "test")


OUTSIDE = "outside every folder that the yaml names; `roots: [/that/folder]` in the yaml names one more"


def test_links_to_images_and_lists_of_absolute_paths_are_the_users_own(tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    images(pool / "images", "a.jpg", "b.jpg")
    put(pool / "labels/b.txt", GOOD)
    folder = tmp_path / "set"
    (folder / "images").mkdir(parents=True)
    (folder / "images/a.jpg").symlink_to(pool / "images/a.jpg")
    put(folder / "labels/a.txt", GOOD)
    put(folder / "list.txt", f"{pool / 'images/b.jpg'}\n")
    split = read_split(data(folder, "train: [images, list.txt]\nnames: [a, b]"), "train")
    assert [image.name for image in split.images] == ["a.jpg", "b.jpg"]
    assert split.set_aside == ()
    assert len(split.labels.boxes) == 4


def test_linked_labels_and_folders_that_leave_every_root_are_set_aside(tmp_path: Path) -> None:
    hidden = put(tmp_path / "elsewhere/secret.txt", GOOD)
    images(tmp_path / "elsewhere", "c.jpg", "d.jpg")
    folder = tmp_path / "set"
    images(folder / "images/train", "a.jpg", "b.jpg")
    (folder / "labels/train").mkdir(parents=True)
    (folder / "labels/train/a.txt").symlink_to(hidden)
    put(folder / "labels/train/b.txt", GOOD)
    (folder / "images/train/more").symlink_to(tmp_path / "elsewhere")
    (folder / "images/loop").symlink_to(folder / "images")
    asked = "train: images/train\nnames: [a, b]"
    split = read_split(data(folder, asked), "train", tolerated=0.9)
    assert [image.name for image in split.images] == ["b.jpg"]  # a's label isn't known, so a isn't background
    assert told(split) == {f"image: in a linked folder {OUTSIDE}": 2, f"label file: {OUTSIDE}": 1}
    assert len(split.labels) == 1
    assert len(split.labels.boxes) == 2
    with pytest.raises(UsageError, match=r"2 of 4 images of .* `roots: \[/that/folder\]` in the yaml names one more"):
        read_split(data(folder, asked), "train")
    allowed = read_split(data(folder, f"{asked}\nroots: {tmp_path / 'elsewhere'}"), "train")
    assert [image.name for image in allowed.images] == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert len(allowed.labels.of(0)) == 2


def test_an_image_whose_label_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    found = simple(tmp_path)
    (tmp_path / "labels/train/a.txt").unlink()
    (tmp_path / "labels/train/a.txt").mkdir()
    split = read_split(found, "train", tolerated=0.5)
    assert [image.name for image in split.images] == ["b.PNG"]
    assert np.allclose(split.labels.of(0), [[0, 0.5, 0.5, 0.2, 0.4], [1, 0.25, 0.25, 0.1, 0.1]])
    with pytest.raises(UsageError, match=r"1 of 2 label files of .* can't be used"):
        read_split(found, "train")


def test_a_label_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    found = simple(tmp_path)
    (tmp_path / "labels/train/a.txt").unlink()
    os.mkfifo(tmp_path / "labels/train/a.txt")
    assert len(read_split(found, "train", tolerated=0.5).images) == 1


def test_an_export_that_says_two_dots_too_many_is_found(tmp_path: Path) -> None:
    images(tmp_path / "ds/train/images", "a.jpg")
    images(tmp_path / "ds/valid/images", "b.jpg")
    put(tmp_path / "ds/train/labels/a.txt", GOOD)
    text = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnames: [a, b]"
    found = data(tmp_path / "ds", text)
    assert len(read_split(found, "train").labels.boxes) == 2
    assert len(read_split(found, "val").images) == 1
    with pytest.raises(MissingFile, match="the test images of"):
        read_split(found, "test")
    images(tmp_path / "train/images", "c.jpg")  # the literal place comes first
    assert [image.name for image in read_split(data(tmp_path / "ds", text), "train").images] == ["c.jpg"]


def test_a_folder_that_is_a_link_named_by_the_yaml_is_fine(tmp_path: Path) -> None:
    images(tmp_path / "pool/images", "a.jpg")
    put(tmp_path / "pool/labels/a.txt", GOOD)
    (tmp_path / "set").mkdir()
    (tmp_path / "set/images").symlink_to(tmp_path / "pool/images")
    (tmp_path / "set/labels").symlink_to(tmp_path / "pool/labels")
    split = read_split(data(tmp_path / "set", "train: images\nnames: [a, b]"), "train")
    assert len(split.labels.boxes) == 2


def test_the_label_lies_in_labels_or_beside_the_image() -> None:
    assert label_path(Path("/d/images/a/b.c.jpg")) == Path("/d/labels/a/b.c.txt")
    assert label_path(Path("/images/x/images/a.jpg")) == Path("/images/x/labels/a.txt")
    assert label_path(Path("/d/photos/a.jpg")) == Path("/d/photos/a.txt")
    assert label_path(Path("/d/images.jpg")) == Path("/d/images.txt")


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    images(tmp_path / "images", "a.jpg")
    (tmp_path / "images/again").symlink_to(tmp_path / "images")
    (tmp_path / "images/dead.jpg").symlink_to(tmp_path / "images/nowhere.jpg")
    split = read_split(data(tmp_path, "train: images\nnames: [a]"), "train", tolerated=0.6)
    assert [image.name for image in split.images] == ["a.jpg"]
    assert told(split)["image: a link to nowhere"] == 1


def test_all_classes_can_be_taken_for_one(tmp_path: Path) -> None:
    found = simple(tmp_path)
    splits = read_split(found, "train"), read_split(found, "val")
    data_of_one, (train, _) = as_one_class(found, splits)
    assert data_of_one.names == ("item",)
    assert train.labels.boxes[:, 0].tolist() == [0, 0, 0, 0]
    assert np.array_equal(train.labels.boxes[:, 1:], splits[0].labels.boxes[:, 1:])
    assert splits[0].labels.boxes[:, 0].max() == 1
    assert as_one_class(data_of_one, splits) == (data_of_one, splits)
