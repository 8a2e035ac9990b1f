"""Images of every format, generated on the spot."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter


def scene(width: int = 320, height: int = 240, seed: int = 0) -> NDArray[np.uint8]:
    """Return an image with large and small shapes, smooth enough for JPEG."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    fine = Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).filter(ImageFilter.GaussianBlur(2))
    pixels = np.array(Image.blend(coarse, fine, 0.3))
    for _ in range(12):
        x, y = rng.integers(0, width - 8), rng.integers(0, height - 8)
        pixels[y : y + rng.integers(8, 60), x : x + rng.integers(8, 60)] = rng.integers(0, 256, 3)
    return pixels


def psnr(first: NDArray[np.generic], second: NDArray[np.generic]) -> float:
    error = np.mean((np.asarray(first, float) - np.asarray(second, float)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def save_photos(folder: Path, count: int, width: int = 96, height: int = 64) -> list[str]:
    """Save different JPEGs, and return their paths."""
    files = []
    for number in range(count):
        path = folder / f"photo{number:03}.jpg"
        Image.fromarray(scene(width, height, number)).save(path, quality=90)
        files.append(str(path))
    return files


def save_colors(folder: Path, count: int) -> list[str]:
    """Save 20×20 PNGs of one gray level each, 10 per number, and return their paths."""
    for number in range(count):
        Image.fromarray(np.full((20, 20, 3), 10 * number, np.uint8)).save(folder / f"{number}.png")
    return [str(folder / f"{number}.png") for number in range(count)]


def overwrite_size(path: Path, width: int, height: int) -> None:
    """Change the size in the header of a JPEG or PNG."""
    data = bytearray(path.read_bytes())
    if data[:2] == b"\xff\xd8":
        markers = (bytes([0xFF, marker]) for marker in (0xC0, 0xC2))
        offset = next(position for marker in markers if (position := data.find(marker)) > 0)
        struct.pack_into(">HH", data, offset + 5, height, width)
    else:
        struct.pack_into(">II", data, 16, width, height)
    path.write_bytes(bytes(data))
