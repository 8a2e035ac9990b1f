"""How a sample is made of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..decoding import Letterbox, Picture, Window, paste_letterbox


@dataclass(frozen=True)
class ImageRequest:
    """An image, or a window of it, that a sample needs.

    Attributes:
        index: which image of the index.
        box: width and height that the pixels are fitted into, keeping their shape; None leaves a window as it is.
        window: the part wanted; None is the whole.
        siblings: other windows of the same image that will be wanted soon: cut from the same decoding.
    """

    index: int
    box: tuple[int, int] | None
    window: Window | None = None
    siblings: tuple[Window, ...] = ()


class DecodedImage(NamedTuple):
    """What was wanted, and what was decoded."""

    want: ImageRequest
    picture: Picture


class SampleBuilder(Protocol):
    """How a sample is made: first say what is needed, so that its bytes are known; then make it.

    The random generator is made from seed, epoch and sample, so a sample is the same whichever thread makes it, and is
    handed on from `requests` to `build`.

    A recipe may also have `image_of(sample)`, when its samples are not numbered like images, and `reuses = True`, when
    its wants have siblings: a quarter of the budget then keeps those until they are used.
    """

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """The images that a sample is made of; canvas is width and height."""
        ...

    def build(self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Any:
        """Paint every pixel of the canvas (rows, columns, 3) and return what goes into the batch's targets."""
        ...


class LetterboxSamples:
    """One whole image, letterboxed; the target is its Letterbox."""

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """The image itself."""
        del rng
        return (ImageRequest(index, canvas),)

    def build(self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Letterbox:
        """Put it into the middle."""
        del rng
        picture = pieces[0].picture
        return paste_letterbox(picture.pixels, picture.window, canvas)


class Transform:
    """A whole image, letterboxed, then a function of yours: `function(image, index, rng)`.

    The function gets rows, columns and bands of bytes, and returns an image of the same shape, or a pair of that and
    a target.
    """

    def __init__(self, function: Callable[[NDArray[np.uint8], int, np.random.Generator], Any]) -> None:
        self._function = function

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """The image itself."""
        del rng
        return (ImageRequest(index, canvas),)

    def build(self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Any:
        """Put it into the middle and call the function."""
        piece = pieces[0]
        target: Any = paste_letterbox(piece.picture.pixels, piece.picture.window, canvas)
        made = self._function(canvas, piece.want.index, rng)
        if isinstance(made, tuple):
            made, target = made
        found = np.asarray(made)
        if found.shape != canvas.shape or found.dtype != np.uint8:
            raise UsageError(
                f"the transform returned {found.dtype} of shape {found.shape}, not bytes of shape {canvas.shape}",
                "return an image like the one it was given; a recipe's `build` may return anything else beside it",
            )
        if found is not canvas:
            canvas[:] = found
        return target


def generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The random numbers of a sample."""
    return np.random.default_rng([seed, epoch, index])
