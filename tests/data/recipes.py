"""Recipes for loaders; no torch, so that workers start as thin as they should."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oomph.data import DecodedImage, ImageRequest


class Mosaic:
    """Four images in four corners; the target is which."""

    def __init__(self, count: int) -> None:
        self.count = count

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        others = rng.integers(0, self.count, 3).tolist()
        return [ImageRequest(number, (canvas[0] // 2, canvas[1] // 2)) for number in (index, *others)]

    def build(self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Any:
        canvas[:] = 114
        half = canvas.shape[0] // 2
        for number, piece in enumerate(pieces):
            pixels = piece.picture.pixels
            corner = canvas[number // 2 * half :, number % 2 * half :]
            corner[: pixels.shape[0], : pixels.shape[1]] = pixels
        return [piece.want.index for piece in pieces], float(rng.random())


def darken(image: NDArray[np.uint8], index: int, rng: np.random.Generator) -> tuple[NDArray[np.uint8], int]:
    return image // rng.integers(2, 5, dtype=np.uint8), index * 10


def wrong(image: NDArray[np.uint8], index: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    del rng
    if index == 5:
        raise ZeroDivisionError("a mistake in the transform")
    return image


def sleepy(image: NDArray[np.uint8], index: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    del index, rng
    time.sleep(0.02)
    return image


def deadly(image: NDArray[np.uint8], index: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    del rng
    if index == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return image
