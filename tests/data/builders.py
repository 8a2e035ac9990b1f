"""Sample builders and transforms; no torch, so that worker processes start fast."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oomph.data import DecodedImage, ImageRequest, LetterboxSamples

Image = NDArray[np.uint8]


class Mosaic:
    """Four images in four corners; the target is their numbers and a random number."""

    def __init__(self, count: int) -> None:
        self.count = count

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        others = rng.integers(0, self.count, 3).tolist()
        return [ImageRequest(number, (canvas[0] // 2, canvas[1] // 2)) for number in (index, *others)]

    def build(self, images: Sequence[DecodedImage], canvas: Image, rng: np.random.Generator) -> Any:
        canvas[:] = 114
        half = canvas.shape[0] // 2
        for number, image in enumerate(images):
            pixels = image.picture.pixels
            corner = canvas[number // 2 * half :, number % 2 * half :]
            corner[: pixels.shape[0], : pixels.shape[1]] = pixels
        return [image.request.index for image in images], float(rng.random())


class KillingSamples(LetterboxSamples):
    """Kills the process that makes the sample of image 2."""

    images = 1

    def build(self, images: Any, canvas: Any, rng: Any) -> Any:
        if images[0].request.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().build(images, canvas, rng)


class SlowSamples(LetterboxSamples):
    """Takes 10 ms; the target is the process id."""

    images = 1

    def build(self, images: Any, canvas: Any, rng: Any) -> Any:
        super().build(images, canvas, rng)
        time.sleep(0.01)
        return os.getpid()


def darken(image: Image, index: int, rng: np.random.Generator) -> tuple[Image, int]:
    return image // rng.integers(2, 5, dtype=np.uint8), index * 10


def fail_on_5(image: Image, index: int, rng: np.random.Generator) -> Image:
    del rng
    if index == 5:
        raise ZeroDivisionError("a mistake in the transform")
    return image


def sleep_20_ms(image: Image, index: int, rng: np.random.Generator) -> Image:
    del index, rng
    time.sleep(0.02)
    return image


def kill_on_3(image: Image, index: int, rng: np.random.Generator) -> Image:
    del rng
    if index == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return image
