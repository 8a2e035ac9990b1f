"""Sample builders: they make the samples of a loader from decoded images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ._labels import Labels
from .decoding import Letterbox, Picture, Window, paste_letterbox

TransformFn = Callable[[NDArray[np.uint8], int, np.random.Generator], Any]


@dataclass(frozen=True)
class ImageRequest:
    """An image, or a window of it, that a sample needs.

    Attributes:
        index: number of the image in the index.
        bounds: width and height that the pixels are resized to fit; None keeps the size of a window.
        window: the part of the image; None for the whole.
        siblings: other windows of the image that will be requested soon. They are decoded together.
        stretch: fill the bounds without keeping the aspect ratio; of whole images only.
    """

    index: int
    bounds: tuple[int, int] | None
    window: Window | None = None
    siblings: tuple[Window, ...] = ()
    stretch: bool = False


class DecodedImage(NamedTuple):
    """A request and its decoded pixels."""

    request: ImageRequest
    picture: Picture


class SampleBuilder(Protocol):
    """Makes samples: `requests` declares the images, so that their memory is known, and `build` composes them.

    The random generator depends on seed, epoch and sample, so that a sample is the same in every thread. `build` gets
    the generator in the state in which `requests` left it. Several threads call a builder at once.

    Optional attributes:
        image_of(sample): the image of a sample, if samples are not numbered like images.
        images: the largest number of images that a sample requests.
        reuses: True if requests have siblings; a quarter of the budget then caches them until they are requested.
    """

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Return the images that a sample needs; canvas is (width, height)."""
        ...

    def build(self, images: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Any:
        """Write every pixel of the canvas (rows, columns, 3), and return the target of the sample."""
        ...


class LetterboxSamples:
    """Sample builder for whole images, letterboxed; the target is the Letterbox."""

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Request the image, fitted into the canvas."""
        del rng
        return (ImageRequest(index, canvas),)

    def build(self, images: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Letterbox:
        """Paste the image into the center of the canvas."""
        del rng
        picture = images[0].picture
        return paste_letterbox(picture.pixels, picture.window, canvas)


class StretchedSamples:
    """Sample builder for whole images, stretched to the canvas whatever their aspect ratio; the target is None."""

    images = 1

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Request the image in the size of the canvas."""
        del rng
        return (ImageRequest(index, canvas, stretch=True),)

    def build(self, images: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> None:
        """Copy the image to the canvas."""
        del rng
        canvas[:] = images[0].picture.pixels


class TransformedSamples:
    """Sample builder for whole images, letterboxed and passed to `function(image, index, rng)`.

    The function gets a uint8 array (rows, columns, 3). It returns an image of the same shape, or an image and a
    target.
    """

    def __init__(self, function: TransformFn) -> None:
        self._function = function

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Request the image, fitted into the canvas."""
        del rng
        return (ImageRequest(index, canvas),)

    def build(self, images: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Any:
        """Paste the image into the center of the canvas and call the function."""
        request, picture = images[0]
        target: Any = paste_letterbox(picture.pixels, picture.window, canvas)
        result = self._function(canvas, request.index, rng)
        if isinstance(result, tuple):
            result, target = result
        image = np.asarray(result)
        if image.shape != canvas.shape or image.dtype != np.uint8:
            raise UsageError(
                f"the transform returned {image.dtype} of shape {image.shape} instead of uint8 of shape {canvas.shape}",
                "return an image of the same type and shape, or write a SampleBuilder",
            )
        if image is not canvas:
            canvas[:] = image
        return target


@dataclass(frozen=True, eq=False)
class BoxTarget:
    """The target of a sample with boxes.

    Attributes:
        index: the image.
        letterbox: placement of the image, or of a window of it, on the canvas.
        classes: classes of its objects.
        boxes: left, top, right, bottom of its objects in canvas pixels.
    """

    index: int
    letterbox: Letterbox
    classes: NDArray[np.int32]
    boxes: NDArray[np.float64]


class LabeledSamples:
    """Sample builder for whole images, letterboxed; the target is a BoxTarget."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """Request the image, fitted into the canvas."""
        del rng
        return (ImageRequest(index, canvas),)

    def build(self, images: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> BoxTarget:
        """Paste the image into the center of the canvas and move its boxes there."""
        del rng
        request, picture = images[0]
        letterbox = paste_letterbox(picture.pixels, picture.window, canvas)
        classes, boxes = self._labels.of(request.index)
        return BoxTarget(request.index, letterbox, classes, letterbox.to_canvas(boxes))


def sample_rng(seed: int, epoch: int, sample: int) -> np.random.Generator:
    """Return the random generator of a sample."""
    return np.random.default_rng([seed, epoch, sample])
