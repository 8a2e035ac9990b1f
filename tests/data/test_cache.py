from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from oomph.data import (
    Cache,
    HostResources,
    ImageIndex,
    Loader,
    LoaderOptions,
    StretchedSamples,
    UnreadableImage,
    _cache,
    decode,
)
from oomph.data.loader import _cached_decoder
from oomph.errors import UsageError

from .images import save_photos

ENTRY_BYTES = 32 * 21 * 3 + 60  # a 96×64 photo fitted into 32×32


def checksums(loader: Loader) -> list[int]:
    return [int(batch.images.long().sum()) for batch in loader]


def cached_loader(files: list[str], cache: Cache, size: int = 32, batch: int = 2) -> Loader:
    return Loader(files, size, batch, options=LoaderOptions(cache=cache))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the files that are decoded."""
    names: list[str] = []

    def recording(path: str, *rest: object, stretch: bool = False) -> object:
        names.append(Path(path).name)
        return decode(path, *rest, stretch=stretch)  # type: ignore[arg-type]

    monkeypatch.setattr(_cached_decoder, "decode", recording)
    return names


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_cached_image_is_not_decoded_again(tmp_path: Path, where: str, decoded: list[str]) -> None:
    files = save_photos(tmp_path, 5)
    cache = Cache(tmp_path / "cache" if where == "disk" else None, "10MB")
    loader = cached_loader(files, cache)
    first = checksums(loader)
    assert sorted(decoded) == [Path(file).name for file in files]
    assert checksums(loader) == first
    assert len(decoded) == 5
    assert cache.used == 5 * ENTRY_BYTES


def test_disk_cache_is_reused_by_the_next_run(tmp_path: Path, decoded: list[str]) -> None:
    files = save_photos(tmp_path, 3)
    first = checksums(cached_loader(files, Cache(tmp_path / "c", "10MB")))
    decoded.clear()
    assert checksums(cached_loader(files, Cache(tmp_path / "c", "10MB"))) == first
    assert decoded == []


def test_removed_cache_folder_is_not_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "c", "10MB")

    def remove(self: Cache, used: int) -> None:
        del used
        shutil.rmtree(self.folder)  # by its owner, while an entry is being stored

    monkeypatch.setattr(Cache, "_write_used", remove)
    assert len(checksums(cached_loader(save_photos(tmp_path, 1), cache, batch=1))) == 1
    assert not (tmp_path / "c").exists()


def test_memory_cache_is_removed_with_its_owner() -> None:
    cache = Cache(None, "1MB")
    folder = cache.folder
    assert folder.exists()
    del cache
    assert not folder.exists()


def test_entries_depend_on_content_and_settings_not_on_names(tmp_path: Path, decoded: list[str]) -> None:
    files = save_photos(tmp_path, 2)
    cache = Cache(tmp_path / "c", "10MB")
    checksums(cached_loader(files, cache))
    checksums(cached_loader(files, cache, size=48))
    assert len(decoded) == 4
    Path(files[0]).write_bytes(Path(files[1]).read_bytes())
    first, second = cached_loader(files, cache, batch=1)
    assert np.array_equal(first.images, second.images)
    assert len(decoded) == 4


def test_stretched_images_have_entries_of_their_own(tmp_path: Path, decoded: list[str]) -> None:
    files, cache = save_photos(tmp_path, 1), Cache(tmp_path / "c", "10MB")
    checksums(cached_loader(files, cache, batch=1))
    for _ in range(2):
        loader = Loader(files, 32, 1, builder=StretchedSamples(), options=LoaderOptions(cache=cache))
        (images,) = (batch.images for batch in loader)
        assert np.array_equal(images[0].permute(1, 2, 0), decode(files[0], (32, 32), stretch=True).pixels)
    assert len(decoded) == 2


def test_cap_is_never_exceeded(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", 3 * ENTRY_BYTES + 10)
    checksums(Loader(save_photos(tmp_path, 8), 32, 2, options=LoaderOptions(cache=cache), threads=4))
    stored = sum(path.stat().st_size for path in (tmp_path / "c").glob("??/*"))
    assert stored == cache.used == 3 * ENTRY_BYTES


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda data: b"", lambda data: data[:100] + b"!" + data[101:]]
)
def test_damaged_entry_is_decoded_again(tmp_path: Path, damage: Callable[[bytes], bytes], decoded: list[str]) -> None:
    files = save_photos(tmp_path, 1)
    cache = Cache(tmp_path / "c", "10MB")
    first = checksums(cached_loader(files, cache))
    (entry,) = (tmp_path / "c").glob("??/*")
    entry.write_bytes(damage(entry.read_bytes()))
    assert checksums(cached_loader(files, cache)) == first
    assert len(decoded) == 2


def die_while_writing(folder: str, file: str) -> None:
    def write_half(file: IO[bytes], picture: object) -> None:
        del picture
        file.write(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    _cache._write_entry = write_half
    checksums(cached_loader([file], Cache(folder, "10MB"), batch=1))


@pytest.mark.medium
def test_crash_while_writing_leaves_no_entry(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 1)
    child = multiprocessing.get_context("fork").Process(target=die_while_writing, args=(str(tmp_path / "c"), files[0]))
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    assert list((tmp_path / "c").glob("??/.*"))
    cache = Cache(tmp_path / "c", "10MB")
    assert cache.used == 0
    assert not list((tmp_path / "c").glob("??/.*"))
    assert len(checksums(cached_loader(files, cache, batch=1))) == 1


def test_unusable_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="can't be used"):
        Cache(tmp_path / "file" / "below", "1MB")


def test_unreadable_image_is_not_stored(tmp_path: Path) -> None:
    files = save_photos(tmp_path, 1)
    index = ImageIndex.of(files)
    data = Path(files[0]).read_bytes()
    Path(files[0]).write_bytes(data[:400] + data[-2:])
    cache = Cache(tmp_path / "c", "1MB")
    with pytest.raises(UnreadableImage):
        cache.get(files[0], index[0], "x", lambda: decode(files[0], (32, 32), index[0]))
    assert cache.used == 0


def test_memory_cache_is_capped_by_available_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = HostResources(10_000_000, "cgroup limit", 1 << 40, 2, gpu=False)
    monkeypatch.setattr(_cache, "read_resources", lambda: resources)
    assert Cache(None, "1TB").cap == 9_000_000
