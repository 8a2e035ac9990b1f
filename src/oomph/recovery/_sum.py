"""Losses whose pieces add up to the loss of the whole batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LossSum:
    """A loss that is a total over a count which only the forward knows: tokens that are not padding, positives.

    The guard adds up totals and counts over the pieces; what is learned from is the whole total by the whole count.

    Attributes:
        total: the sum of the losses, a scalar that can be differentiated.
        count: how many were summed: a number, or a tensor without gradient.
    """

    total: Tensor
    count: Tensor | float
