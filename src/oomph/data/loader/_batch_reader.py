"""`BatchReader`: any batch of an epoch, made in the thread that requests it. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import OomphError, UsageError
from .._index import ImageIndex, Name, SkippedImage, to_index
from .._sampler import BatchSpec, ShuffledSampler, samples_from
from .._samples import LetterboxSamples, SampleBuilder
from ..decoding import PixelConversion
from ._cached_decoder import CachedDecoder
from ._plan import BatchShape, decode_limits
from ._sample_maker import BadSample, ByteSemaphore, SampleMaker, WindowCache
from ._timings import Timings

_MAX_REPLACEMENTS = 1000  # samples tried for one row before the batch fails
_MISSING = -1  # number of an image that can't be decoded


class ReadBatch(NamedTuple):
    """A batch of a BatchReader: images as uint8 array (samples, height, width, 3), and the numbers of the images."""

    images: NDArray[np.uint8]
    indices: NDArray[np.int64]


class BatchReader:
    """Reads the batches of an epoch in any order, for frameworks that schedule batches themselves.

    Every call of `read` decodes in its own thread; all threads together stay within the budget. The order depends only
    on the seed and the epoch. `Loader` makes batches ahead in threads of its own and is faster for a plain loop.

    Args:
        source: an ImageIndex, a folder, or a list of files.
        size: height and width of the canvas.
        batch: samples per batch.
        budget: bytes that decoding may use at once.
        builder: makes samples from whole images; letterboxes them by default.
        shuffle: use a new order every epoch.
        seed: seed of the order.
        replace: replace an image that can't be decoded by the next one of the epoch, instead of leaving it out.
        threads: number of threads that call `read` at once.

    Raises:
        UsageError: no image can be used within the budget, or an argument is invalid.
    """

    def __init__(  # noqa: PLR0913  named like the arguments of a Loader
        self,
        source: ImageIndex | Name | Iterable[Name],
        size: tuple[int, int],
        batch: int,
        budget: int,
        *,
        builder: SampleBuilder | None = None,
        shuffle: bool = False,
        seed: int = 0,
        replace: bool = True,
        threads: int = 1,
    ) -> None:
        self.index, canvas = to_index(source), (size[1], size[0])
        limits = decode_limits(self.index, BatchShape(canvas, max(batch, 1)), budget, threads)
        if not len(limits.samples):
            raise UsageError(*_nothing_to_read(self.index, limits.skipped))
        self._sampler = ShuffledSampler(limits.samples, batch, canvas, shuffle, seed)
        self._replace = replace
        self._skipped = dict(limits.skipped)
        self._semaphore = ByteSemaphore(limits.budget, Timings())
        builder = builder or LetterboxSamples()
        cap, decoder = limits.image_budget, CachedDecoder()
        self._maker = SampleMaker(
            self.index, builder, PixelConversion(), seed, cap, WindowCache(0), decoder, self._skipped
        )
        self._epoch_batches: tuple[int, Sequence[BatchSpec]] = (0, self._sampler.epoch(0))

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self._epoch_batches[1])

    @property
    def peak(self) -> int:
        """The most bytes that decoding used at once, as predicted from the headers."""
        return self._semaphore.peak

    def read(self, epoch: int, number: int) -> ReadBatch:
        """Return a batch of an epoch; several threads may call it.

        Raises:
            OomphError: no image can be decoded.
        """
        batches = self._batches_of(epoch)
        samples, width, height = batches[number]
        images = np.empty((len(samples), height, width, 3), np.uint8)
        indices = np.full(len(samples), _MISSING, np.int64)
        for row in range(len(samples)):
            candidates = samples_from(batches, number, row)
            for sample in islice(candidates, _MAX_REPLACEMENTS if self._replace else 1):
                if self._make(sample, epoch, images[row : row + 1]):
                    indices[row] = sample
                    break
        kept = indices != _MISSING
        if kept.all():
            return ReadBatch(images, indices)
        if self._replace:
            last = next(reversed(self._skipped.values()))
            raise OomphError(f"no image can be decoded; last reason: {last}", "check the files in skipped()")
        return ReadBatch(images[kept], indices[kept])

    def _make(self, sample: int, epoch: int, canvas: NDArray[np.uint8]) -> bool:
        (target,) = self._maker.make_samples([sample], epoch, canvas, self._semaphore.acquire)
        if isinstance(target, BadSample):
            self._skipped[target.image] = target.reason
            return False
        return True

    def _batches_of(self, epoch: int) -> Sequence[BatchSpec]:
        current = self._epoch_batches
        if current[0] != epoch:
            self._epoch_batches = current = (epoch, self._sampler.epoch(epoch))
        return current[1]

    def skipped(self) -> list[SkippedImage]:
        """Return the files that are not used, each with its reason: from the index, and from decoding."""
        later = [(image, reason) for image, reason in sorted(self._skipped.items()) if not self.index.reason(image)]
        return self.index.skipped() + [SkippedImage(self.index.path(image), reason) for image, reason in later]


def _nothing_to_read(index: ImageIndex, skipped: dict[int, str]) -> tuple[str, str]:
    if not len(index):
        return "there are no images", "name images, or a folder of images"
    reason = next(iter(skipped.values()), None) or index.skipped()[0].reason
    return f"none of the {len(index)} images can be used; first reason: {reason}", "replace them, or raise the budget"
