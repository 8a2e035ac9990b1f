"""A split ready for loading: image headers read, undecodable images left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...data import ImageIndex, SkippedImage
from ...errors import UsageError
from ._issues import DataIssue
from ._labels import LabelTable
from ._split import Split

_MAX_EXAMPLES = 3
_MIN_CACHED_IMAGES = 1000  # from this many images on, the index is saved next to them
IndexProgress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class IndexedSplit:
    """The decodable images of a split and their boxes.

    Attributes:
        index: the images, by their headers.
        labels: boxes of each image.
        shapes: height and width of each image, after EXIF rotation.
        issues: what was skipped or fixed, of images and labels.
    """

    index: ImageIndex
    labels: LabelTable
    shapes: tuple[tuple[int, int], ...]
    issues: tuple[DataIssue, ...]


def index_split(split: Split, max_broken_fraction: float = 0.1, progress: IndexProgress | None = None) -> IndexedSplit:
    """Read the image headers of a split and leave out images that can't be decoded.

    The index of a large split is saved next to its images; the next call reads only the headers of changed files.

    Args:
        split: images and labels.
        max_broken_fraction: fraction of images that may be undecodable.
        progress: called with the number of headers read and the total.

    Raises:
        UsageError: more images than that can't be decoded.
    """
    cache = split.images[0].parent / f".oomph-index-{split.name}" if len(split.images) >= _MIN_CACHED_IMAGES else None
    index = ImageIndex.of([str(image) for image in split.images], progress=progress, keep=cache)
    usable = index.usable
    skipped = index.skipped()
    if len(skipped) > max_broken_fraction * len(index):
        raise UsageError(
            f"{len(skipped)} of {len(index)} {split.name} images can't be read (first: {skipped[0].path!r}, "
            f"{skipped[0].reason})",
            f"fix or remove them, or set `max_broken_fraction` above {max_broken_fraction:g} in the settings",
        )
    selected = index.select(usable) if skipped else index
    boxes = [split.labels.of(int(number)) for number in usable]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(rows) for rows in boxes], dtype=np.int64)))
    labels = LabelTable(np.concatenate(boxes).reshape(-1, 5) if boxes else split.labels.boxes[:0], starts)
    return IndexedSplit(selected, labels, image_shapes(selected), (*split.issues, *_as_issues(skipped)))


def image_shapes(index: ImageIndex) -> tuple[tuple[int, int], ...]:
    """Return height and width of each image, after EXIF rotation."""
    return tuple((header.display_size[1], header.display_size[0]) for header in index)


def _as_issues(skipped: Sequence[SkippedImage]) -> list[DataIssue]:
    by_reason: dict[str, list[str]] = {}
    for image in skipped:
        by_reason.setdefault(str(image.reason), []).append(str(image.path))
    return [
        DataIssue("image", reason, len(paths), broken=True, examples=tuple(paths[:_MAX_EXAMPLES]))
        for reason, paths in by_reason.items()
    ]
