"""Match target boxes with cells and anchors of the three levels.

Each box is tried at every level with every anchor in five cells: its own and the ones to the left, above, right and
below. The table of all candidates (45 per box) has the same shape for any boxes; a mask marks the positives. It costs a
few megabytes next to gigabytes of activations. Selecting the positives instead would make a GPU wait for their number
at each step, and could not be traced without data. All levels share one table because a fast GPU is limited by kernel
launches: a table per level would launch three times as many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_CELL_SHIFTS = ((0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (-0.5, 0.0), (0.0, -0.5))


@dataclass(frozen=True)
class Grids:
    """Grid sizes of the levels as tensors. Creating them on a GPU synchronizes, so create them once.

    Attributes:
        sides: columns and rows of the levels, (levels, 1, 2).
        shifts: offsets from a center to the candidate cells, (cells, 1, 2).
    """

    sides: Tensor
    shifts: Tensor

    @classmethod
    def of(cls, shapes: Sequence[tuple[int, int]], like: Tensor) -> Grids:
        """Return the grids of levels with these (rows, columns), on the device of `like`."""
        sides = like.new_tensor([[columns, rows] for rows, columns in shapes])
        return cls(sides[:, None], like.new_tensor(_CELL_SHIFTS)[:, None])


@dataclass(frozen=True)
class Candidates:
    """Candidate cells of all levels, (levels, candidates).

    Attributes:
        positive: True for the candidates that match.
        image: image of the batch.
        anchor, row, column: position in the level's grid, always inside it.
        box: center relative to the cell, and size, in cells; a unit box for negatives.
        prior: size of the anchor, in cells.
        label: the class.
    """

    positive: Tensor
    image: Tensor
    anchor: Tensor
    row: Tensor
    column: Tensor
    box: Tensor
    prior: Tensor
    label: Tensor


def match_targets(targets: Tensor, anchors: Tensor, grids: Grids, anchor_t: float = 4.0) -> Candidates:
    """Match targets (n, 6: image, class, x, y, w, h as fractions) with anchors (levels, a, 2) in cells.

    A box may be up to `anchor_t` times larger or smaller than its anchor.
    """
    sides, center, size = grids.sides, targets[:, 2:4] * grids.sides, targets[:, 4:6] * grids.sides
    levels, count = anchors.shape[:2]
    shape = (levels, len(_CELL_SHIFTS), count, len(targets))
    positive = (_near_cells(center, sides)[:, :, None] & _similar_size(size, anchors, anchor_t)[:, None]).flatten(1)

    cells = (center[:, None] - grids.shifts).long()  # (levels, shifts, targets, 2); rounds toward zero, never below it
    cells = torch.minimum(cells.clamp(min=0), sides.long()[:, None] - 1)
    offset = center[:, None] - cells
    box = torch.cat((offset, size[:, None].expand_as(offset)), -1)
    box = box[:, :, None].expand(*shape, 4).reshape(levels, -1, 4)
    column, row = (cells[:, :, None, :, axis].expand(shape).flatten(1) for axis in (0, 1))
    anchor = torch.arange(count, device=targets.device).view(-1, 1).expand(shape).flatten(1)
    prior = anchors[:, None, :, None].expand(*shape, 2).reshape(levels, -1, 2)
    image, label = (targets[:, index].long().expand(shape).flatten(1) for index in (0, 1))
    return Candidates(positive, image, anchor, row, column, box.masked_fill(~positive[..., None], 1.0), prior, label)


def count_positives(targets: Tensor, anchors: Tensor, grids: Grids, anchor_t: float = 4.0) -> Tensor:
    """Return the number of positives that `match_targets` finds at each level."""
    center, size = targets[:, 2:4] * grids.sides, targets[:, 4:6] * grids.sides
    return (_near_cells(center, grids.sides).sum(1) * _similar_size(size, anchors, anchor_t).sum(1)).sum(-1)


def _similar_size(size: Tensor, anchors: Tensor, anchor_t: float) -> Tensor:
    """Return which anchors have nearly the size of which boxes, (levels, anchors, targets)."""
    ratio = size[:, None] / anchors[:, :, None].to(size.dtype)
    return torch.maximum(ratio, 1 / ratio).amax(-1) < anchor_t


def _near_cells(center: Tensor, sides: Tensor) -> Tensor:
    """Return which of the five cells count for which boxes, (levels, cells, targets)."""
    from_end = sides - center
    before = (center % 1 < 0.5) & (center > 1)  # noqa: PLR2004  the nearer half of the cell
    after = (from_end % 1 < 0.5) & (from_end > 1)  # noqa: PLR2004
    same = torch.ones_like(before[..., 0])
    return torch.stack((same, before[..., 0], before[..., 1], after[..., 0], after[..., 1]), 1)
