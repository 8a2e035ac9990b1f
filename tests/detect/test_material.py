from __future__ import annotations

from pathlib import Path

from PIL import Image

from oomph.detect import prepare, read_dataset, read_split


def test_headers_of_many_images_are_kept_and_read_again_where_they_changed(tmp_path: Path) -> None:
    folder = tmp_path / "images/train"
    folder.mkdir(parents=True)
    Image.new("RGB", (40, 30)).save(tmp_path / "one.png")
    picture = (tmp_path / "one.png").read_bytes()
    for number in range(1000):
        (folder / f"{number:04}.png").write_bytes(picture)
    (tmp_path / "data.yaml").write_text("train: images/train\nval: images/train\nnames: [cat]\n")
    split = read_split(read_dataset(tmp_path / "data.yaml"), "train")
    told: list[tuple[int, int | None]] = []

    def tell(done: int, total: int | None) -> None:
        told.append((done, total))

    first = prepare(split, progress=tell)
    assert told[-1] == (1000, 1000)
    assert (folder / ".oomph-index-train").exists()
    Image.new("RGB", (50, 60)).save(folder / "0007.png")
    second = prepare(split)
    assert first.shapes[7] == (30, 40)
    assert second.shapes[7] == (60, 50)
    assert second.shapes[:7] == first.shapes[:7]
