"""Full-size JPEG decoding by simplejpeg (optional): 3 bytes per pixel instead of Pillow's 4."""

from __future__ import annotations

import mmap
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@cache
def load_simplejpeg() -> Any | None:
    """Return the package simplejpeg, or None if it isn't installed."""
    try:
        import simplejpeg  # noqa: PLC0415  optional
    except ImportError:
        return None
    return simplejpeg


def decode_file(path: str, *, gray: bool) -> NDArray[np.uint8] | None:
    """Decode a whole JPEG; None if simplejpeg isn't installed or rejects the file, which Pillow may still read."""
    if load_simplejpeg() is None:
        return None
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return decode_bytes(memoryview(mapped), gray=gray)


def decode_bytes(data: bytes | memoryview, *, gray: bool) -> NDArray[np.uint8] | None:
    """Decode a JPEG in memory; None if simplejpeg isn't installed or rejects the data."""
    simplejpeg = load_simplejpeg()
    if simplejpeg is None:
        return None
    try:
        return np.asarray(simplejpeg.decode_jpeg(data, "GRAY" if gray else "RGB"))
    except ValueError:
        return None
    finally:
        if isinstance(data, memoryview):
            data.release()
