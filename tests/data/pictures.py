"""Images of every kind, made on the spot."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter


def scene(width: int = 320, height: int = 240, seed: int = 0) -> NDArray[np.uint8]:
    """A picture with large and small shapes, soft enough for JPEG."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    fine = Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).filter(ImageFilter.GaussianBlur(2))
    mixed = Image.blend(coarse, fine, 0.3)
    pixels = np.array(mixed)
    for _ in range(12):
        x, y = rng.integers(0, width - 8), rng.integers(0, height - 8)
        pixels[y : y + rng.integers(8, 60), x : x + rng.integers(8, 60)] = rng.integers(0, 256, 3)
    return pixels


def psnr(one: NDArray[np.generic], other: NDArray[np.generic]) -> float:
    error = np.mean((np.asarray(one, float) - np.asarray(other, float)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def photos(folder: Path, count: int, width: int = 96, height: int = 64) -> list[str]:
    """Some JPEGs, each of its own."""
    files = []
    for number in range(count):
        path = folder / f"photo{number:03}.jpg"
        Image.fromarray(scene(width, height, number)).save(path, quality=90)
        files.append(str(path))
    return files


def claim_size(path: Path, width: int, height: int) -> None:
    """Make the header of a JPEG or PNG claim another size."""
    data = bytearray(path.read_bytes())
    if data[:2] == b"\xff\xd8":
        at = next(data.find(bytes([0xFF, marker])) for marker in (0xC0, 0xC2) if data.find(bytes([0xFF, marker])) > 0)
        struct.pack_into(">HH", data, at + 5, height, width)
    else:
        struct.pack_into(">II", data, 16, width, height)
    path.write_bytes(bytes(data))
