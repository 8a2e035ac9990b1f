"""Full-size JPEGs through simplejpeg, which needs three bytes a pixel where Pillow needs four; optional."""

from __future__ import annotations

import mmap
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@cache
def turbo() -> Any | None:
    """The package simplejpeg, where it is installed."""
    try:
        import simplejpeg  # noqa: PLC0415  optional
    except ImportError:
        return None
    return simplejpeg


def decode_file(path: str, *, grey: bool) -> NDArray[np.uint8] | None:
    """The whole picture; None where simplejpeg isn't there or finds fault with the file, which Pillow may forgive."""
    found = turbo()
    if found is None:
        return None
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return decode_bytes(memoryview(mapped), grey=grey)


def decode_bytes(data: bytes | memoryview, *, grey: bool) -> NDArray[np.uint8] | None:
    """The same, of a JPEG in memory."""
    found = turbo()
    if found is None:
        return None
    try:
        return np.asarray(found.decode_jpeg(data, "GRAY" if grey else "RGB"))
    except ValueError:
        return None
    finally:
        if isinstance(data, memoryview):
            data.release()
