from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from oomph.data import Window, decode, decode_cost, decode_windows, decode_windows_cost, read_header

from ..images import scene

SLACK = 3_000_000  # of the allocator and of Python
FORMATS: dict[str, tuple[str, dict[str, object]]] = {
    "a.jpg": ("RGB", {"quality": 90}),
    "progressive.jpg": ("RGB", {"quality": 90, "progressive": True}),
    "a.png": ("RGB", {"compress_level": 1}),
    "alpha.png": ("RGBA", {"compress_level": 1}),
    "palette.png": ("P", {"compress_level": 1}),
    "a.webp": ("RGB", {"quality": 60, "method": 0}),
    "a.bmp": ("RGB", {}),
    "a.gif": ("P", {}),
    "raw.tif": ("RGB", {}),
    "deflate.tif": ("RGB", {"compression": "tiff_deflate"}),
    "a.npy": ("", {}),
}


def peak_growth(work: Callable[[], object]) -> int:
    """Return the peak growth of RSS while something runs, sampled without a pause."""
    process, running, peak = psutil.Process(), True, 0

    def watch() -> None:
        nonlocal peak
        while running:
            peak = max(peak, process.memory_info().rss)

    work()  # load libraries first
    before = process.memory_info().rss
    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    running = False
    watcher.join()
    return peak - before


@pytest.mark.medium
@pytest.mark.parametrize("name", FORMATS)
def test_cost_is_an_upper_bound_of_measured_memory(tmp_path: Path, name: str) -> None:
    path, pixels = tmp_path / name, np.tile(scene(500, 300), (4, 3, 1))
    mode, options = FORMATS[name]
    if name == "a.npy":
        np.save(path, pixels)
    else:
        Image.fromarray(pixels).convert(mode).save(path, **options)  # type: ignore[arg-type]
    header = read_header(str(path))
    assert peak_growth(lambda: decode(path, (320, 320), header)) <= decode_cost(header, (320, 240)) + SLACK
    windows = [Window(100, 100, 600, 600), Window(900, 600, 1400, 1100)]
    assert peak_growth(lambda: decode_windows(path, windows, header)) <= decode_windows_cost(header, windows) + SLACK
