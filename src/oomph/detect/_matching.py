"""Which cells and anchors of a level answer for which box.

Each box is tried with every anchor in five cells: its own, and those left, above, right and below. The table of all
15 candidates a box has the same shape whatever the boxes are, with a mask for those that count. That costs a few
megabytes beside gigabytes of activations, and saves what picking the positives out would cost on a GPU: waiting for
their number at each level, at each step. It can also be traced without data.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SHIFTS = ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (-0.5, 0.0), (0.0, -0.5))


@dataclass(frozen=True)
class Candidates:
    """Candidates of one level, one a row.

    Attributes:
        counts: which rows are positives.
        image: image of the batch; anchor, row, column: the place in the grid, always inside it.
        box: centre relative to the cell, and size, in cells; a unit box where the row is no positive.
        label: the class.
    """

    counts: Tensor
    image: Tensor
    anchor: Tensor
    row: Tensor
    column: Tensor
    box: Tensor
    label: Tensor


def match(targets: Tensor, anchors: Tensor, grid: tuple[int, int], ratio: float = 4.0) -> Candidates:
    """Match targets (n, 6) of image, class, x, y, w, h as fractions with a level's anchors (a, 2) in cells.

    A box may be up to `ratio` times larger or smaller than its anchor.
    """
    height, width = grid
    sides = targets.new_tensor([width, height])
    number, places = len(anchors), len(_SHIFTS)
    centre, size = targets[:, 2:4] * sides, targets[:, 4:6] * sides
    counts = (_near(centre, sides)[:, None] & _fits(size, anchors, ratio)[None]).flatten()

    shifts = targets.new_tensor(_SHIFTS)
    cells = (centre[None] - shifts[:, None]).long()  # (places, targets, 2); toward zero, and never below it
    cells = torch.minimum(cells.clamp(min=0), sides.long() - 1)
    offset = centre[None] - cells
    box = torch.cat((offset, size.expand_as(offset)), -1)
    order = (places, number, len(targets))
    row = cells[:, None, :, 1].expand(order).flatten()
    column = cells[:, None, :, 0].expand(order).flatten()
    anchor = torch.arange(number, device=targets.device).view(1, -1, 1).expand(order).flatten()
    image, label = (targets[:, column].long().expand(order).flatten() for column in (0, 1))
    box = box[:, None].expand(*order, 4).reshape(-1, 4)
    return Candidates(counts, image, anchor, row, column, torch.where(counts[:, None], box, 1.0), label)


def count(targets: Tensor, anchors: Tensor, grid: tuple[int, int], ratio: float = 4.0) -> Tensor:
    """How many candidates of `match` are positives."""
    sides = targets.new_tensor([grid[1], grid[0]])
    near = _near(targets[:, 2:4] * sides, sides).sum(0)
    return (near * _fits(targets[:, 4:6] * sides, anchors, ratio).sum(0)).sum()


def _fits(size: Tensor, anchors: Tensor, most: float) -> Tensor:
    """Which anchors have nearly the size of which boxes, as (anchors, targets)."""
    ratio = size[None] / anchors[:, None].to(size.dtype)
    return torch.maximum(ratio, 1 / ratio).amax(-1) < most


def _near(centre: Tensor, sides: Tensor) -> Tensor:
    """Which of the five cells count for which boxes, as (places, targets)."""
    far = sides - centre
    before = (centre % 1 < 0.5) & (centre > 1)  # noqa: PLR2004  the nearer half of the cell
    after = (far % 1 < 0.5) & (far > 1)  # noqa: PLR2004
    own = torch.ones_like(before[:, 0])
    return torch.stack((own, before[:, 0], before[:, 1], after[:, 0], after[:, 1]))
