from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from oomph.detect import Split, index_split, read_dataset, read_split
from oomph.errors import UsageError


def write_split(folder: Path, count: int) -> Split:
    images = folder / "images/train"
    images.mkdir(parents=True)
    Image.new("RGB", (40, 30)).save(folder / "one.png")
    content = (folder / "one.png").read_bytes()
    for number in range(count):
        (images / f"{number:04}.png").write_bytes(content)
    (folder / "data.yaml").write_text("train: images/train\nval: images/train\nnames: [cat]\n")
    return read_split(read_dataset(folder / "data.yaml"), "train")


@pytest.mark.medium
def test_index_of_a_large_split_is_saved_and_changed_files_are_read_again(tmp_path: Path) -> None:
    split = write_split(tmp_path, 1000)
    progress: list[tuple[int, int | None]] = []
    first = index_split(split, progress=lambda done, total: progress.append((done, total)))
    assert progress[-1] == (1000, 1000)
    folder = tmp_path / "images/train"
    assert (folder / ".oomph-index-train").exists()
    Image.new("RGB", (50, 60)).save(folder / "0007.png")
    second = index_split(split)
    assert first.shapes[7] == (30, 40)
    assert second.shapes[7] == (60, 50)
    assert second.shapes[:7] == first.shapes[:7]


def test_undecodable_images_are_left_out_or_rejected(tmp_path: Path) -> None:
    split = write_split(tmp_path, 4)
    (tmp_path / "images/train/0002.png").write_bytes(b"not an image")
    indexed = index_split(split, max_broken_fraction=0.25)
    assert len(indexed.index) == len(indexed.labels) == len(indexed.shapes) == 3
    assert str(indexed.issues[0]).startswith("4 images have no label file")
    assert (indexed.issues[-1].count, indexed.issues[-1].broken) == (1, True)
    with pytest.raises(UsageError, match=r"1 of 4 train images can't be read \(first: '.*0002\.png'"):
        index_split(split, max_broken_fraction=0.2)
