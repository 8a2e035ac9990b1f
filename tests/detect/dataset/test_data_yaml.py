from __future__ import annotations

from pathlib import Path

import pytest

from oomph.detect import Dataset, read_dataset, read_split
from oomph.errors import MissingFile, UsageError


@pytest.fixture(autouse=True)
def images(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").touch()


def dataset(folder: Path, text: str) -> Dataset:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "data.yaml"
    file.write_text(text, encoding="utf-8")
    return read_dataset(file)


@pytest.mark.parametrize(
    "names", ["names: {0: cat, 1: dog}", "names:\n  '1': dog\n  '0': cat", "nc: 2\nnames: [cat, dog]"]
)
def test_names_are_a_list_or_a_map(tmp_path: Path, names: str) -> None:
    assert dataset(tmp_path, f"train: images\nval: images\n{names}").names == ("cat", "dog")


def test_names_are_strings(tmp_path: Path) -> None:
    assert dataset(tmp_path, "train: images\nnames: [1, 2.5, no]").names == ("1", "2.5", "False")
    assert dataset(tmp_path, "train: images\nnc: 2").names == ("0", "1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("names: [a]", "names neither train nor val images"),
        ("train: images", "has no class names"),
        ("train: images\nnames: {0: a, 2: b}", "without a gap"),
        ("train: images\nnames: [a]\nnc: 3", "sets nc to 3 but names 1 classes"),
        ("train: 5\nnames: [a]", "sets train to 5"),
        ("train: images\nnames: [a]\npath: 7", "sets path to 7"),
        ("train: !!python/object/apply:os.system ['touch mark']\nnames: [a]", "is not valid YAML"),
    ],
)
def test_invalid_content_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dataset(tmp_path, text)


def test_a_nested_value_is_truncated_in_the_message(tmp_path: Path) -> None:
    nested = ", ".join(f"key{number}: [1, 2, 3]" for number in range(100))
    with pytest.raises(UsageError) as caught:
        dataset(tmp_path, f"train: {{{nested}}}\nnames: [a]")
    assert "sets train to {'key0': [1, 2, 3]" in str(caught.value)
    assert len(str(caught.value)) < 200 + len(str(tmp_path))


def test_a_missing_folder_is_named_and_download_is_quoted_but_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(MissingFile) as caught:
        dataset(tmp_path, f"train: missing\nnames: [a]\ndownload: |\n  touch {mark}\n")
    assert "with the train images of" in str(caught.value)
    assert f"its `download:` is 'touch {mark}'"[:60] in str(caught.value)
    assert "never runs" in str(caught.value)
    assert not mark.exists()
    with pytest.raises(MissingFile, match="no file"):
        read_dataset(tmp_path / "missing.yaml")


def test_path_is_relative_to_the_yaml_or_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "datasets/x y/images/ä"
    folder.mkdir(parents=True)
    (folder / "ö.jpg").touch()
    text = "path: ../datasets/x y\ntrain: images/ä\nnames: [a]"
    split = read_split(dataset(tmp_path / "project", text), "train")
    assert [image.name for image in split.images] == ["ö.jpg"]
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert dataset(tmp_path / "far/away", text).root == (tmp_path / "datasets/x y").resolve()


def test_paths_of_roboflow_exports_are_found(tmp_path: Path) -> None:
    for name in ("ds/train/images/a.jpg", "ds/valid/images/b.jpg"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    text = "train: ../train/images\nval: ../valid/images\ntest: ../test/images\nnames: [a, b]"
    export = dataset(tmp_path / "ds", text)
    assert [len(read_split(export, name).images) for name in ("train", "val")] == [1, 1]
    with pytest.raises(MissingFile, match="with the test images of"):
        read_split(export, "test")
    (tmp_path / "train/images").mkdir(parents=True)  # the literal path has priority
    (tmp_path / "train/images/c.jpg").touch()
    assert [image.name for image in read_split(dataset(tmp_path / "ds", text), "train").images] == ["c.jpg"]
