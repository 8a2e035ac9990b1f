from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oomph.data import HostResources, Loader, LoaderOptions, decode
from oomph.data.loader import _cached_decoder
from oomph.data.loader._cached_decoder import DecodeStats, decide_cache
from oomph.units import GIB, MIB

from ..images import scene

RESOURCES = HostResources(memory=16 * GIB, limited_by="RAM", shm=8 * GIB, cores=12, gpu=False)
SLOW = DecodeStats(images=20, bytes=20 * 819_200, seconds=1.6, sizes=1)  # 80 ms for an entry of 640×427


def large_photos(folder: Path, count: int) -> list[str]:
    """Save JPEGs of 6 megapixels that differ only in their trailing bytes."""
    Image.fromarray(np.tile(scene(300, 200), (10, 10, 1))).save(folder / "large.jpg", quality=85)
    data = (folder / "large.jpg").read_bytes()
    files = [folder / f"large{number}.jpg" for number in range(count)]
    for number, file in enumerate(files):
        file.write_bytes(data + bytes([number]) * 100)
    return [str(file) for file in files]


def checksums(loader: Loader) -> list[int]:
    return sorted(int(batch.images.long().sum()) for batch in loader)


@pytest.mark.medium
def test_memory_cache_starts_by_itself_if_it_pays_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(large_photos(tmp_path, 16), 64, 1, shuffle=True, threads=2)
    first = checksums(loader)
    assert loader.plan.cache == "memory"
    assert "ms per image, the cache" in loader.plan.why("cache")
    assert loader.plan.memory.cache == loader.plan.cache_bytes > 0
    assert checksums(loader) == first
    decoded: list[str] = []

    def recording(path: str, *rest: Any) -> object:
        decoded.append(path)
        return decode(path, *rest)

    monkeypatch.setattr(_cached_decoder, "decode", recording)
    assert checksums(loader) == first
    assert decoded == []
    assert loader.report().measured.cache == 16 * (64 * 43 * 3 + 60)


@pytest.mark.medium
@pytest.mark.parametrize(
    "options", [{"options": LoaderOptions(cache="off"), "shuffle": True}, {"shuffle": False}], ids=["off", "one pass"]
)
def test_no_cache_if_forbidden_or_images_are_read_once(tmp_path: Path, options: dict[str, Any]) -> None:
    loader = Loader(large_photos(tmp_path, 16), 64, 1, threads=2, **options)
    checksums(loader)
    assert loader.plan.cache == "off"
    assert loader.report().measured.cache == 0


def test_cache_pays_off_for_slow_decoding() -> None:
    decision = decide_cache(SLOW, 2 * GIB, RESOURCES, is_waiting=True)
    assert decision.bytes == 2 * GIB
    assert "decoding takes 80.0 ms per image, the cache 1.1 ms" in decision.why


@pytest.mark.parametrize(
    ("stats", "all_bytes", "is_waiting", "reason"),
    [
        (SLOW, GIB, False, "ready before they are needed"),
        (SLOW._replace(sizes=5), GIB, True, "changing sizes"),
        (SLOW._replace(seconds=0.04), GIB, True, "too little gain"),
        (SLOW._replace(images=3), GIB, True, "too few"),
        (SLOW, 900 * GIB, True, "a full cache needs 900 GiB"),
    ],
)
def test_no_cache_with_a_reason(stats: DecodeStats, all_bytes: int, is_waiting: bool, reason: str) -> None:  # noqa: FBT001  a case
    decision = decide_cache(stats, all_bytes, RESOURCES, is_waiting=is_waiting)
    assert decision.bytes == 0
    assert reason in decision.why


def test_cache_is_limited_by_memory_and_dev_shm() -> None:
    decision = decide_cache(SLOW, 20 * GIB, RESOURCES, is_waiting=True)
    assert decision.bytes == RESOURCES.shm * 9 // 10 <= RESOURCES.memory // 2
    assert "36% of the images fit" in decision.why
    small = HostResources(GIB, "RAM", 64 * MIB, 4, gpu=False)
    assert "64 MiB of /dev/shm" in decide_cache(SLOW, GIB, small, is_waiting=True).why
