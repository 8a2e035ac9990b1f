from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oomph.data import ClassFolder
from oomph.errors import MissingFile, UsageError

from .images import save_colors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, count in (("dogs", 3), ("cats", 2), ("birds", 0), (".hidden", 1)):
        (tmp_path / name).mkdir()
        save_colors(tmp_path / name, count)
    (tmp_path / "dogs/small").mkdir()
    save_colors(tmp_path / "dogs/small", 1)
    save_colors(tmp_path, 1)
    return tmp_path


def test_subfolders_are_classes_in_alphabetical_order_and_empty_ones_count(folder: Path) -> None:
    images = ClassFolder.open(folder)
    assert images.names == ("birds", "cats", "dogs")
    assert np.bincount(images.classes).tolist() == [0, 2, 4]  # without the image outside, with the folder inside dogs
    for number, path in enumerate(images.index.paths()):
        assert Path(path).relative_to(folder).parts[0] == images.names[images.classes[number]]


def test_given_names_set_the_order(folder: Path) -> None:
    images = ClassFolder.open(folder, ["dogs", "cats"])
    assert np.bincount(images.classes).tolist() == [4, 2]


def test_wrong_folders_are_one_sentence(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no folder 'lions' in"):
        ClassFolder.open(folder, ["cats", "lions"])
    with pytest.raises(MissingFile, match=r"there is no folder '.*nowhere'"):
        ClassFolder.open(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="has no subfolders"):
        ClassFolder.open(folder / "cats")
    with pytest.raises(UsageError, match="there are no images in the subfolders"):
        ClassFolder.open(folder, ["birds"])
