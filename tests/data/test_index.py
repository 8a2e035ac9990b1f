from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oomph.data import ImageIndex, read_header
from oomph.errors import MissingFile

from .pictures import photos


def test_an_index_holds_what_headers_say_in_order(tmp_path: Path) -> None:
    files = photos(tmp_path, 5)
    index = ImageIndex.of(reversed(files))
    assert list(index.paths()) == files[::-1]
    assert list(index) == [read_header(file) for file in files[::-1]]
    assert index.usable.tolist() == [0, 1, 2, 3, 4]


def test_a_folder_is_walked_in_one_order_and_kept_beside_the_images(tmp_path: Path) -> None:
    for folder in ("b", "a", "a.b", "a/c"):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        photos(tmp_path / folder, 2)
    (tmp_path / "a" / "labels.txt").write_text("0 0.5 0.5 1 1")
    first = ImageIndex.open(tmp_path)
    assert len(first) == 8
    assert (tmp_path / ".oomph-index").exists()
    assert list(ImageIndex.open(tmp_path).paths()) == list(first.paths())


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose headers are read from now on."""
    from oomph.data import _records

    seen: list[str] = []
    real = _records._outcome

    def noting(path: str) -> object:
        seen.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(_records, "_outcome", noting)
    return seen


def test_only_files_that_changed_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path, 4)
    ImageIndex.open(tmp_path)
    seen = reads(monkeypatch)
    ImageIndex.open(tmp_path)
    assert seen == []
    Image.new("RGB", (11, 12)).save(tmp_path / "photo001.jpg")
    (tmp_path / "photo002.jpg").unlink()
    Image.new("RGB", (13, 14)).save(tmp_path / "photo001b.png")
    again = ImageIndex.open(tmp_path)
    assert sorted(seen) == ["photo001.jpg", "photo001b.png"]
    assert [Path(path).name for path in again.paths()] == [
        "photo000.jpg",
        "photo001.jpg",
        "photo001b.png",
        "photo003.jpg",
    ]
    assert again[1].shown == (11, 12)
    seen.clear()
    assert list(ImageIndex.open(tmp_path)) == list(again)
    assert seen == []


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"oomphix1" + b"\xff" * 64])
def test_a_damaged_index_counts_as_none(tmp_path: Path, damage: bytes) -> None:
    photos(tmp_path, 2)
    ImageIndex.open(tmp_path)
    (tmp_path / ".oomph-index").write_bytes(damage)
    assert len(ImageIndex.open(tmp_path)) == 2


def test_an_index_cut_off_anywhere_counts_as_none(tmp_path: Path) -> None:
    photos(tmp_path, 2)
    ImageIndex.open(tmp_path)
    whole = (tmp_path / ".oomph-index").read_bytes()
    for length in range(0, len(whole), 37):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(MissingFile):
            ImageIndex.load(tmp_path / "cut")


@pytest.mark.parametrize(
    ("field", "value"), [("orientation", 9), ("width", 0), ("format", 99), ("dtype", 77), ("reason", 5)]
)
def test_an_index_whose_numbers_lead_nowhere_counts_as_none(tmp_path: Path, field: str, value: int) -> None:
    index = ImageIndex.of(photos(tmp_path, 2))
    index.records[field][1] = value
    index.save(tmp_path / "index")
    with pytest.raises(MissingFile):
        ImageIndex.load(tmp_path / "index")


def test_a_folder_that_is_read_only_keeps_its_index_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    photos(data, 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    ImageIndex.open(data)
    assert not (data / ".oomph-index").exists()
    assert len(list((cache / "oomph").glob("index-*"))) == 1
    seen = reads(monkeypatch)
    assert len(ImageIndex.open(data)) == 2
    assert seen == []


def test_broken_files_and_links_that_lead_away_are_set_aside_with_reasons(tmp_path: Path) -> None:
    data, away = tmp_path / "data", tmp_path / "away"
    data.mkdir()
    away.mkdir()
    photos(data, 1)
    (data / "empty.jpg").touch()
    (data / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1")
    (data / "link.jpg").symlink_to(photos(away, 1)[0])
    (data / "folder").symlink_to(away)
    (data / "dangling.png").symlink_to(data / "nothing")
    index = ImageIndex.open(data)
    assert {Path(skipped.path).name: skipped.reason for skipped in index.skipped()} == {
        "dangling.png": "can't be read: No such file or directory",
        "empty.jpg": "empty: zero bytes",
        "folder": "a link that leads out of the folder",
        "link.jpg": "a link that leads out of the folder",
        "phone.heic": "a HEIC file, which no decoder here reads",
    }
    assert [Path(index.path(number)).name for number in index.usable.tolist()] == ["photo000.jpg"]


def test_names_that_are_no_text_survive(tmp_path: Path) -> None:
    photos(tmp_path, 1)
    odd = os.fsencode(tmp_path) + b"/caf\xe9 \xff.jpg"
    (tmp_path / "photo000.jpg").rename(os.fsdecode(odd))
    for index in (ImageIndex.open(tmp_path), ImageIndex.open(tmp_path), ImageIndex.of([os.fsdecode(odd)])):
        assert index.path(0) == os.fsdecode(odd)
        assert index[0].shown == (96, 64)


def test_a_mapped_index_travels_as_a_file_name(tmp_path: Path) -> None:
    photos(tmp_path, 3)
    index = ImageIndex.open(tmp_path)
    packed = pickle.dumps(index)
    assert len(packed) < 400
    assert list(pickle.loads(packed).paths()) == list(index.paths())  # noqa: S301  our own bytes


def test_a_large_index_in_memory_is_shared_through_a_file_that_goes_with_it(tmp_path: Path) -> None:
    file = photos(tmp_path, 1)[0]
    index = ImageIndex.of([file] * 3000).shared()
    packed = pickle.dumps(index)
    assert len(packed) < 400
    place = Path(index._stored.file[0])  # type: ignore[index]
    assert len(pickle.loads(packed)) == 3000  # noqa: S301
    del index
    assert not place.exists()


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    files = photos(tmp_path, 1) * 1100
    ImageIndex.of(files, progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == [512, 1024, 1100]


def test_some_of_an_index_is_an_index(tmp_path: Path) -> None:
    files = photos(tmp_path, 4)
    part = ImageIndex.of(files).select(np.array([3, 1]))
    assert list(part.paths()) == [files[3], files[1]]
    assert part[0] == read_header(files[3])


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no folder"):
        ImageIndex.open(tmp_path / "nowhere")


def test_index_and_decoding_import_no_torch(tmp_path: Path) -> None:
    file = photos(tmp_path, 1)[0]
    code = (
        "import sys; from oomph.data import ImageIndex, decode; "
        f"index = ImageIndex.of([{file!r}]); decode(index.path(0), (32, 32), index[0]); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def read_all(index: ImageIndex, answers: Any) -> None:
    """Look at every name once, out of order, and tell this process's own memory before and after."""
    order = np.random.default_rng(0).permutation(len(index))
    index.path(0)
    before = own_bytes()
    for number in order:
        index.path(number)
    answers.send(own_bytes() - before)


def own_bytes() -> int:
    """Memory that this process has written to and shares with nobody."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private_Dirty:"))


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_do_not_grow_by_reading_names(tmp_path: Path, start: str) -> None:
    names = 200_000
    index = ImageIndex.of(photos(tmp_path, 1)).select(np.zeros(names, np.int64)).shared()
    context: Any = multiprocessing.get_context(start)
    ours, theirs = context.Pipe()
    worker = context.Process(target=read_all, args=(index, theirs))
    worker.start()
    assert ours.poll(60)
    grown = ours.recv()
    worker.join()
    assert grown < 2_000_000  # a list of such names grows by twenty


def test_a_list_of_files_keeps_its_index_and_reads_only_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images").mkdir()
    files, place = photos(tmp_path / "images", 5), tmp_path / ".oomph-train"
    order = [files[3], files[0], files[4], files[1]]
    first = ImageIndex.of(order, keep=place)
    written = place.stat().st_mtime_ns
    seen = reads(monkeypatch)
    again = ImageIndex.of(order, keep=place)
    assert (list(again), list(again.paths())) == (list(first), order)
    assert seen == []
    assert place.stat().st_mtime_ns == written
    os.utime(files[4], ns=(1, 1))
    Path(files[0]).unlink()
    changed = ImageIndex.of([*order[::-1], files[2]], keep=place)
    assert sorted(seen) == ["photo000.jpg", "photo002.jpg", "photo004.jpg"]
    assert list(changed.paths()) == [*order[::-1], files[2]]
    assert "No such file" in str(changed.reason(2))
    seen.clear()
    assert list(ImageIndex.of([*order[::-1], files[2]], keep=place).usable) == [0, 1, 3, 4]
    assert seen == ["photo000.jpg"]  # what is missing is looked for each time


def test_progress_over_a_list_knows_its_end(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    ImageIndex.of(photos(tmp_path, 3), progress=lambda done, total: told.append((done, total)))
    assert told == [(3, 3)]
