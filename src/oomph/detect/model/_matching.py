"""Which cells and anchors of which level answer for which box.

Each box is tried at every level with every anchor in five cells: its own, and those left, above, right and below. The
table of all candidates, 45 a box, has the same shape whatever the boxes are, with a mask for those that count. That
costs a few megabytes beside gigabytes of activations, and saves what picking the positives out would cost on a GPU:
waiting for their number at each step. It can also be traced without data. And it is one table for all levels, because
a fast GPU waits for its launches: a table each would take three times as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_SHIFTS = ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (-0.5, 0.0), (0.0, -0.5))


@dataclass(frozen=True)
class Grids:
    """What matching has to know of the levels, as tensors. Making them on a GPU waits for it: make them once.

    Attributes:
        sides: columns and rows of the levels, (levels, 1, 2).
        shifts: from a centre to the places that are tried, (places, 1, 2).
    """

    sides: Tensor
    shifts: Tensor

    @classmethod
    def of(cls, shapes: Sequence[tuple[int, int]], like: Tensor) -> Grids:
        """Grids of so many rows and columns, where a tensor is."""
        sides = like.new_tensor([[columns, rows] for rows, columns in shapes])
        return cls(sides[:, None], like.new_tensor(_SHIFTS)[:, None])


@dataclass(frozen=True)
class Candidates:
    """Candidates of all levels, (levels, rows): as many at each level.

    Attributes:
        counts: which are positives.
        image: image of the batch; anchor, row, column: the place in the level's grid, always inside it.
        box: centre relative to the cell, and size, in cells; a unit box where the row is no positive.
        prior: size of the anchor, in cells.
        label: the class.
    """

    counts: Tensor
    image: Tensor
    anchor: Tensor
    row: Tensor
    column: Tensor
    box: Tensor
    prior: Tensor
    label: Tensor


def match(targets: Tensor, anchors: Tensor, grids: Grids, ratio: float = 4.0) -> Candidates:
    """Match targets (n, 6) of image, class, x, y, w, h as fractions with the levels' anchors (levels, a, 2) in cells.

    A box may be up to `ratio` times larger or smaller than its anchor.
    """
    sides, centre, size = grids.sides, targets[:, 2:4] * grids.sides, targets[:, 4:6] * grids.sides
    levels, number = anchors.shape[:2]
    order = (levels, len(_SHIFTS), number, len(targets))
    counts = (_near(centre, sides)[:, :, None] & _fits(size, anchors, ratio)[:, None]).flatten(1)

    cells = (centre[:, None] - grids.shifts).long()  # (levels, places, targets, 2); toward zero, and never below it
    cells = torch.minimum(cells.clamp(min=0), sides.long()[:, None] - 1)
    offset = centre[:, None] - cells
    box = torch.cat((offset, size[:, None].expand_as(offset)), -1)
    box = box[:, :, None].expand(*order, 4).reshape(levels, -1, 4)
    column, row = (cells[:, :, None, :, axis].expand(order).flatten(1) for axis in (0, 1))
    anchor = torch.arange(number, device=targets.device).view(-1, 1).expand(order).flatten(1)
    prior = anchors[:, None, :, None].expand(*order, 2).reshape(levels, -1, 2)
    image, label = (targets[:, at].long().expand(order).flatten(1) for at in (0, 1))
    return Candidates(counts, image, anchor, row, column, box.masked_fill(~counts[..., None], 1.0), prior, label)


def count(targets: Tensor, anchors: Tensor, grids: Grids, ratio: float = 4.0) -> Tensor:
    """How many candidates of `match` are positives, at each level."""
    centre, size = targets[:, 2:4] * grids.sides, targets[:, 4:6] * grids.sides
    return (_near(centre, grids.sides).sum(1) * _fits(size, anchors, ratio).sum(1)).sum(-1)


def _fits(size: Tensor, anchors: Tensor, most: float) -> Tensor:
    """Which anchors have nearly the size of which boxes, as (levels, anchors, targets)."""
    ratio = size[:, None] / anchors[:, :, None].to(size.dtype)
    return torch.maximum(ratio, 1 / ratio).amax(-1) < most


def _near(centre: Tensor, sides: Tensor) -> Tensor:
    """Which of the five cells count for which boxes, as (levels, places, targets)."""
    far = sides - centre
    before = (centre % 1 < 0.5) & (centre > 1)  # noqa: PLR2004  the nearer half of the cell
    after = (far % 1 < 0.5) & (far > 1)  # noqa: PLR2004
    own = torch.ones_like(before[..., 0])
    return torch.stack((own, before[..., 0], before[..., 1], after[..., 0], after[..., 1]), 1)
