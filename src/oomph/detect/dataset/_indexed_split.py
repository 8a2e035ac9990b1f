"""A split ready for loading: headers read, unusable images gone, boxes beside their images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data import BatchSpec, DecodedImage, ImageIndex, ImageRequest, Letterbox, paste_letterbox
from ...errors import UsageError
from ._augmentation import Augmentation, choose, compose
from ._data_yaml import Split
from ._issues import SetAside
from ._labels import LabelTable
from ._rect_sampler import frames

_EXAMPLES = 3
_MANY = 1000  # images whose headers are worth keeping
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Material:
    """The images of a split that can be decoded, and their boxes.

    Attributes:
        index: the images, by their headers.
        labels: the boxes of each.
        shapes: height and width of each, as it is shown.
        set_aside: what was left out or mended, of images and of labels.
    """

    index: ImageIndex
    labels: LabelTable
    shapes: tuple[tuple[int, int], ...]
    set_aside: tuple[SetAside, ...]


def prepare(split: Split, tolerated: float = 0.1, progress: Progress | None = None) -> Material:
    """Read the headers of a split's images and leave out what can't be decoded.

    The headers of many images are kept beside them, and next time only those of files that changed are read.

    Args:
        split: the images and their labels.
        tolerated: the share that may be unusable.
        progress: is told how many headers are read, and of how many.

    Raises:
        UsageError: more than the tolerated share can't be.
    """
    keep = split.images[0].parent / f".oomph-index-{split.name}" if len(split.images) >= _MANY else None
    index = ImageIndex.of([str(image) for image in split.images], progress=progress, keep=keep)
    usable = index.usable
    broken = index.skipped()
    if len(broken) > tolerated * len(index):
        raise UsageError(
            f"{len(broken)} of {len(index)} {split.name} images can't be read, the first {broken[0].path!r}: "
            f"{broken[0].reason}",
            f"mend them, take them out, or set `tolerated` above {tolerated:g} in the settings",
        )
    told = _told(broken)
    chosen = index.select(usable) if broken else index
    boxes = [split.labels.of(int(at)) for at in usable]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(rows) for rows in boxes], dtype=np.int64)))
    table = LabelTable(np.concatenate(boxes).reshape(-1, 5) if boxes else split.labels.boxes[:0], starts)
    shapes = tuple((header.shown[1], header.shown[0]) for header in chosen)
    return Material(chosen, table, shapes, (*split.set_aside, *told))


def _told(broken: Sequence[Any]) -> list[SetAside]:
    reasons: dict[str, list[str]] = {}
    for one in broken:
        reasons.setdefault(str(one.reason), []).append(str(one.path))
    return [SetAside("image", why, len(paths), True, tuple(paths[:_EXAMPLES])) for why, paths in reasons.items()]  # noqa: FBT003


class Samples:
    """A recipe for the loader: training samples, mosaics and all."""

    def __init__(self, labels: LabelTable, augmentation: Augmentation) -> None:
        self._labels, self._augmentation = labels, augmentation
        self.images = 8 if augmentation.mixup else 4  # that a sample is made of, at most

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """The images that a sample is made of, none larger than the canvas."""
        return [ImageRequest(one, canvas) for one in choose(index, len(self._labels), self._augmentation, rng)]

    def build(self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Any:
        """Paint the sample; its boxes are the target."""
        parts = [(piece.picture.pixels, self._labels.of(piece.want.index)) for piece in pieces]
        return compose(parts, canvas, self._augmentation, rng)


def gather(boxes: list[NDArray[np.float32]]) -> Any:
    """The boxes of a batch's samples as rows that begin with the sample's number."""
    import torch  # noqa: PLC0415  processes that make samples may have none

    owners = np.repeat(np.arange(len(boxes), dtype=np.float32), [len(own) for own in boxes])
    rows = np.concatenate([own.reshape(-1, 5) for own in boxes]).astype(np.float32)
    return torch.from_numpy(np.column_stack((owners, rows)))


class Framed:
    """A recipe for the loader: whole images in the frame that their batch shares; the target is where they lie.

    An image's longer side gets the size that the network was trained at, never more: what is left of the frame is grey.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def requests(self, index: int, canvas: tuple[int, int], rng: np.random.Generator) -> Sequence[ImageRequest]:
        """The image itself."""
        del rng
        return (ImageRequest(index, (min(canvas[0], self._size), min(canvas[1], self._size))),)

    def build(self, pieces: Sequence[DecodedImage], canvas: NDArray[np.uint8], rng: np.random.Generator) -> Letterbox:
        """Put it into the middle."""
        del rng
        picture = pieces[0].picture
        return paste_letterbox(picture.pixels, picture.window, canvas)


@dataclass(frozen=True)
class Rectangles:
    """An order for the loader: images of like shape together, dealt out to ranks batch by batch."""

    shapes: tuple[tuple[int, int], ...]
    size: int
    batch: int
    rank: int = 0
    ranks: int = 1

    @property
    def largest(self) -> BatchSpec:
        """The batch with the most pixels."""
        return max(self._planned(), key=lambda one: len(one.indices) * one.width * one.height)

    def epoch(self, number: int) -> Sequence[BatchSpec]:
        """The same batches every time."""
        del number
        return self._planned()[self.rank :: self.ranks]

    def _planned(self) -> list[BatchSpec]:
        found = frames(list(self.shapes), self.size, self.batch)
        return [BatchSpec(np.array(one.indices, np.int64), one.size[1], one.size[0]) for one in found]
