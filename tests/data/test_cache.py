from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from PIL import Image

from oomph.data import Cache, ImageIndex, Loader, LoaderOptions, UnreadableImage, decode
from oomph.data.loader import _shelf
from oomph.errors import UsageError

from .pictures import photos, scene

ENTRY = 32 * 21 * 3 + 60  # a 96×64 photo in a box of 32


def epoch(loader: Loader) -> list[int]:
    return [int(batch.images.long().sum()) for batch in loader]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are decoded from now on."""
    seen: list[str] = []
    real = decode

    def noting(path: str, *rest: object) -> object:
        seen.append(Path(path).name)
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(_shelf, "decode", noting)
    return seen


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_what_was_decoded_once_is_not_decoded_again(tmp_path: Path, where: str, decoded: list[str]) -> None:
    files = photos(tmp_path, 5)
    cache = Cache(tmp_path / "cache" if where == "disk" else None, "10MB")
    loader = Loader(files, 32, 2, options=LoaderOptions(cache=cache))
    first = epoch(loader)
    assert sorted(decoded) == [Path(file).name for file in files]
    assert epoch(loader) == first
    assert len(decoded) == 5
    assert cache.used == 5 * ENTRY


def test_a_cache_outlives_its_process_when_it_is_on_disk(tmp_path: Path, decoded: list[str]) -> None:
    files = photos(tmp_path, 3)
    first = epoch(Loader(files, 32, 2, options=LoaderOptions(cache=Cache(tmp_path / "c", "10MB"))))
    decoded.clear()
    assert epoch(Loader(files, 32, 2, options=LoaderOptions(cache=Cache(tmp_path / "c", "10MB")))) == first
    assert decoded == []


def test_a_cache_that_was_removed_does_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "c", "10MB")

    def removed(self: Cache, used: int) -> None:
        del used
        shutil.rmtree(self.folder)  # by its owner, at the worst time

    monkeypatch.setattr(Cache, "_count", removed)
    assert len(epoch(Loader(photos(tmp_path, 1), 32, 1, options=LoaderOptions(cache=cache)))) == 1
    assert not (tmp_path / "c").exists()


def test_a_cache_in_memory_goes_with_its_owner() -> None:
    cache = Cache(None, "1MB")
    folder = cache.folder
    assert folder.exists()
    del cache
    assert not folder.exists()


def test_other_content_or_settings_are_other_pictures(tmp_path: Path, decoded: list[str]) -> None:
    files = photos(tmp_path, 2)
    cache = Cache(tmp_path / "c", "10MB")
    epoch(Loader(files, 32, 2, options=LoaderOptions(cache=cache)))
    epoch(Loader(files, 48, 2, options=LoaderOptions(cache=cache)))
    assert len(decoded) == 4
    Path(files[0]).write_bytes(Path(files[1]).read_bytes())
    first, second = Loader(files, 32, 1, options=LoaderOptions(cache=cache))
    assert np.array_equal(first.images, second.images)
    assert len(decoded) == 4  # the same content is the same picture, whatever its name


def test_the_cap_is_never_passed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c", 3 * ENTRY + 10)
    epoch(Loader(photos(tmp_path, 8), 32, 2, options=LoaderOptions(cache=cache), threads=4))
    kept = sum(path.stat().st_size for path in (tmp_path / "c").glob("??/*"))
    assert kept == cache.used == 3 * ENTRY


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda data: b"", lambda data: data[:100] + b"!" + data[101:]]
)
def test_a_damaged_copy_is_decoded_again(tmp_path: Path, damage: object, decoded: list[str]) -> None:
    files = photos(tmp_path, 1)
    cache = Cache(tmp_path / "c", "10MB")
    first = epoch(Loader(files, 32, 2, options=LoaderOptions(cache=cache)))
    (copy,) = (tmp_path / "c").glob("??/*")
    copy.write_bytes(damage(copy.read_bytes()))  # type: ignore[operator]
    assert epoch(Loader(files, 32, 2, options=LoaderOptions(cache=cache))) == first
    assert len(decoded) == 2


def die_writing(folder: str, file: str) -> None:
    from oomph.data import _cache

    def killed(file: IO[bytes], picture: object) -> None:
        del picture
        file.write(b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    _cache._write = killed
    epoch(Loader([file], 32, 1, options=LoaderOptions(cache=Cache(folder, "10MB"))))


def test_a_crash_in_the_middle_of_writing_leaves_nothing(tmp_path: Path) -> None:
    files = photos(tmp_path, 1)
    child = multiprocessing.get_context("fork").Process(target=die_writing, args=(str(tmp_path / "c"), files[0]))
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    assert list((tmp_path / "c").glob("??/.*"))
    cache = Cache(tmp_path / "c", "10MB")
    assert cache.used == 0
    assert not list((tmp_path / "c").glob("??/.*"))
    assert len(epoch(Loader(files, 32, 1, options=LoaderOptions(cache=cache)))) == 1


def test_a_folder_where_nothing_can_be_kept_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="nothing can be kept"):
        Cache(tmp_path / "file" / "below", "1MB")


def test_a_broken_file_is_not_cached(tmp_path: Path) -> None:
    files = photos(tmp_path, 1)
    index = ImageIndex.of(files)
    data = Path(files[0]).read_bytes()
    Path(files[0]).write_bytes(data[:400] + data[-2:])
    cache = Cache(tmp_path / "c", "1MB")
    with pytest.raises(UnreadableImage):
        cache.picture(files[0], index[0], "x", lambda: decode(files[0], (32, 32), index[0]))
    assert cache.used == 0


def large(folder: Path, count: int) -> list[str]:
    """JPEGs of 6 megapixels; what stands behind the picture makes each one of its own."""
    Image.fromarray(np.tile(scene(300, 200), (10, 10, 1))).save(folder / "large.jpg", quality=85)
    data = (folder / "large.jpg").read_bytes()
    files = [folder / f"large{number}.jpg" for number in range(count)]
    for number, file in enumerate(files):
        file.write_bytes(data + bytes([number]) * 100)
    return [str(file) for file in files]


def test_a_cache_in_memory_comes_by_itself_when_it_pays(tmp_path: Path, decoded: list[str]) -> None:
    loader = Loader(large(tmp_path, 16), 64, 1, shuffle=True, threads=2)
    first = sorted(epoch(loader))
    assert loader.plan.cache == "memory"
    assert "reading its copy" in loader.plan.why("cache")
    assert loader.plan.memory.copies == loader.plan.copies > 0
    assert sorted(epoch(loader)) == first
    decoded.clear()
    assert sorted(epoch(loader)) == first
    assert decoded == []
    assert loader.report().measured.copies == 16 * (64 * 43 * 3 + 60)


@pytest.mark.parametrize(
    "words", [{"options": LoaderOptions(cache="off"), "shuffle": True}, {"shuffle": False}], ids=str
)
def test_a_cache_stays_away_when_it_was_refused_or_images_are_seen_once(tmp_path: Path, words: Any) -> None:
    loader = Loader(large(tmp_path, 16), 64, 1, threads=2, **words)
    epoch(loader)
    assert loader.plan.cache == "off"
    assert loader.report().measured.copies == 0


def test_a_cache_in_memory_is_capped_by_what_the_machine_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    from oomph.data import HostResources, _cache

    monkeypatch.setattr(
        _cache, "read_resources", lambda: HostResources(10_000_000, "cgroup limit", 1 << 40, 2, gpu=False)
    )
    assert Cache(None, "1TB").cap == 9_000_000
