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

from oomph.data import ImageIndex, _index_builder, read_header
from oomph.errors import MissingFile

from .images import save_photos


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the files that are read."""
    names: list[str] = []

    def recording(path: str) -> object:
        names.append(Path(path).name)
        return read_header(path)

    monkeypatch.setattr(_index_builder, "read_header", recording)
    return names


def test_index_has_the_headers_of_the_files_in_order(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 5)
    index = ImageIndex.of(reversed(files))
    assert list(index.paths()) == files[::-1]
    assert list(index) == [read_header(file) for file in files[::-1]]
    assert index.usable.tolist() == [0, 1, 2, 3, 4]
    assert repr(index) == "<ImageIndex of 5 files, 0 skipped>"


def test_index_of_a_folder_is_saved_in_it(tmp_path: Path) -> None:
    for folder in ("b", "a", "a.b", "a/c"):
        (tmp_path / folder).mkdir(exist_ok=True, parents=True)
        save_photos(tmp_path / folder, 2)
    (tmp_path / "a" / "labels.txt").write_text("0 0.5 0.5 1 1")
    first = ImageIndex.open(tmp_path)
    assert len(first) == 8
    assert (tmp_path / ".oomph-index").exists()
    assert list(ImageIndex.open(tmp_path).paths()) == list(first.paths())


def test_only_changed_files_are_read_again(tmp_path: Path, read: list[str]) -> None:
    save_photos(tmp_path, 4)
    ImageIndex.open(tmp_path)
    read.clear()
    ImageIndex.open(tmp_path)
    assert read == []
    Image.new("RGB", (11, 12)).save(tmp_path / "photo001.jpg")
    (tmp_path / "photo002.jpg").unlink()
    Image.new("RGB", (13, 14)).save(tmp_path / "photo001b.png")
    changed = ImageIndex.open(tmp_path)
    assert sorted(read) == ["photo001.jpg", "photo001b.png"]
    assert [Path(path).name for path in changed.paths()] == [
        "photo000.jpg",
        "photo001.jpg",
        "photo001b.png",
        "photo003.jpg",
    ]
    assert changed[1].display_size == (11, 12)
    read.clear()
    assert list(ImageIndex.open(tmp_path)) == list(changed)
    assert read == []


@pytest.mark.parametrize("content", [b"", b"nonsense", b"oomphix1" + b"\xff" * 64])
def test_damaged_index_is_ignored(tmp_path: Path, content: bytes) -> None:
    save_photos(tmp_path, 2)
    ImageIndex.open(tmp_path)
    (tmp_path / ".oomph-index").write_bytes(content)
    assert len(ImageIndex.open(tmp_path)) == 2


def test_truncated_index_is_rejected(tmp_path: Path) -> None:
    save_photos(tmp_path, 2)
    ImageIndex.open(tmp_path)
    content = (tmp_path / ".oomph-index").read_bytes()
    for length in range(0, len(content), 37):
        (tmp_path / "cut").write_bytes(content[:length])
        with pytest.raises(MissingFile):
            ImageIndex.load(tmp_path / "cut")


@pytest.mark.parametrize(
    ("field", "value"), [("orientation", 9), ("width", 0), ("format", 99), ("dtype", 77), ("reason", 5)]
)
def test_index_with_invalid_numbers_is_rejected(tmp_path: Path, field: str, value: int) -> None:
    index = ImageIndex.of(save_photos(tmp_path, 2))
    index.records[field][1] = value
    index.save(tmp_path / "index")
    with pytest.raises(MissingFile):
        ImageIndex.load(tmp_path / "index")


def test_index_of_a_read_only_folder_is_saved_in_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: list[str]
) -> None:
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    save_photos(data, 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    ImageIndex.open(data)
    assert not (data / ".oomph-index").exists()
    assert len(list((cache / "oomph").glob("index-*"))) == 1
    read.clear()
    assert len(ImageIndex.open(data)) == 2
    assert read == []


def test_unusable_files_are_skipped_with_reasons(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    data.mkdir()
    outside.mkdir()
    save_photos(data, 1)
    (data / "empty.jpg").touch()
    (data / "phone.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1")
    (data / "link.jpg").symlink_to(save_photos(outside, 1)[0])
    (data / "folder").symlink_to(outside)
    (data / "dangling.png").symlink_to(data / "nothing")
    index = ImageIndex.open(data)
    assert {Path(skipped.path).name: skipped.reason for skipped in index.skipped()} == {
        "dangling.png": "can't be read: No such file or directory",
        "empty.jpg": "empty: zero bytes",
        "folder": "a link to a place outside the folder",
        "link.jpg": "a link to a place outside the folder",
        "phone.heic": "unsupported format: HEIC",
    }
    assert [Path(index.path(number)).name for number in index.usable.tolist()] == ["photo000.jpg"]


def test_names_need_not_be_valid_text(tmp_path: Path) -> None:
    save_photos(tmp_path, 1)
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 \xff.jpg")
    (tmp_path / "photo000.jpg").rename(path)
    for index in (ImageIndex.open(tmp_path), ImageIndex.open(tmp_path), ImageIndex.of([path])):
        assert index.path(0) == path
        assert index[0].display_size == (96, 64)


def test_mapped_index_pickles_as_a_file_name(tmp_path: Path) -> None:
    save_photos(tmp_path, 3)
    index = ImageIndex.open(tmp_path)
    pickled = pickle.dumps(index)
    assert len(pickled) < 400
    assert list(pickle.loads(pickled).paths()) == list(index.paths())  # noqa: S301  our own bytes


@pytest.mark.medium
def test_large_index_is_shared_through_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    index = ImageIndex.of([save_photos(tmp_path, 1)[0]] * 3000).shared()
    pickled = pickle.dumps(index)
    assert len(pickled) < 400
    assert len(pickle.loads(pickled)) == 3000  # noqa: S301  our own bytes
    assert len(list(tmp_path.glob("oomph-index-*"))) == 1
    del index
    assert not list(tmp_path.glob("oomph-index-*"))


def test_progress_is_reported(tmp_path: Path) -> None:
    calls: list[tuple[int, int | None]] = []
    ImageIndex.of(save_photos(tmp_path, 1) * 1100, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(512, 1100), (1024, 1100), (1100, 1100)]


def test_select_returns_an_index(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 4)
    part = ImageIndex.of(files).select(np.array([3, 1]))
    assert list(part.paths()) == [files[3], files[1]]
    assert part[0] == read_header(files[3])


def test_missing_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no folder"):
        ImageIndex.open(tmp_path / "nowhere")


def test_index_of_a_list_is_saved_and_only_changed_files_are_read(tmp_path: Path, read: list[str]) -> None:
    (tmp_path / "images").mkdir()
    files, path = save_photos(tmp_path / "images", 5), tmp_path / ".oomph-train"
    order = [files[3], files[0], files[4], files[1]]
    first = ImageIndex.of(order, keep=path)
    written = path.stat().st_mtime_ns
    read.clear()
    again = ImageIndex.of(order, keep=path)
    assert (list(again), list(again.paths())) == (list(first), order)
    assert read == []
    assert path.stat().st_mtime_ns == written
    os.utime(files[4], ns=(1, 1))
    Path(files[0]).unlink()
    changed = ImageIndex.of([*order[::-1], files[2]], keep=path)
    assert sorted(read) == ["photo000.jpg", "photo002.jpg", "photo004.jpg"]
    assert list(changed.paths()) == [*order[::-1], files[2]]
    assert "No such file" in str(changed.reason(2))
    read.clear()
    assert list(ImageIndex.of([*order[::-1], files[2]], keep=path).usable) == [0, 1, 3, 4]
    assert read == ["photo000.jpg"]  # a missing file is looked up every time


@pytest.mark.medium
def test_indexing_and_decoding_do_not_import_torch(tmp_path: Path) -> None:
    file = save_photos(tmp_path, 1)[0]
    code = (
        "import sys; from oomph.data import ImageIndex, decode; "
        f"index = ImageIndex.of([{file!r}]); decode(index.path(0), (32, 32), index[0]); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def read_all_paths(index: ImageIndex, connection: Any) -> None:
    """Read every path in random order, and send the growth of this process's private memory."""
    order = np.random.default_rng(0).permutation(len(index))
    index.path(0)
    before = private_bytes()
    for number in order:
        index.path(number)
    connection.send(private_bytes() - before)


def private_bytes() -> int:
    text = Path("/proc/self/smaps_rollup").read_text()
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Private_Dirty:"))


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("start_method", ["fork", "spawn"])
def test_workers_do_not_grow_by_reading_paths(tmp_path: Path, start_method: str) -> None:
    index = ImageIndex.of(save_photos(tmp_path, 1)).select(np.zeros(100_000, np.int64)).shared()
    context: Any = multiprocessing.get_context(start_method)
    ours, theirs = context.Pipe()
    worker = context.Process(target=read_all_paths, args=(index, theirs))
    worker.start()
    assert ours.poll(60)
    growth = ours.recv()
    worker.join()
    assert growth < 2_000_000  # a list of as many names would grow by 10 MB
