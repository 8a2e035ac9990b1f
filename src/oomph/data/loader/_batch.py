"""What a loader yields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Batch(NamedTuple):
    """A batch: a tuple of three, as DataLoaders give them.

    Attributes:
        images: bytes, as (samples, 3, height, width), in channels-last memory.
        indices: which samples of the index they are.
        targets: what the recipe returned for each sample, put together by `collate`; with no recipe, a tuple of
            Letterbox values that say where each image lies on its canvas.
    """

    images: Tensor
    indices: Tensor
    targets: Any
