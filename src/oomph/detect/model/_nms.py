"""Non-maximum suppression: of boxes that overlap, the surest one stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ._boxes import iou_pairs, to_corners

_BLOCK = 512


@dataclass(frozen=True)
class Suppression:
    """How predictions become boxes.

    Attributes:
        confidence: boxes less sure than this are left out.
        overlap: of two boxes of a class that overlap more, the surer one stays.
        limit: most boxes of an image.
        several_labels: whether a box may have several classes, or only its likeliest.
        candidates: most boxes that are compared, the surest ones.
        classes: the classes that are looked for; all if None.
        across_classes: whether a box also takes the place of one of another class.
    """

    confidence: float = 0.25
    overlap: float = 0.45
    limit: int = 300
    several_labels: bool = False
    candidates: int = 30_000
    classes: tuple[int, ...] | None = None
    across_classes: bool = False


VALIDATION = Suppression(confidence=0.001, overlap=0.6, several_labels=True)


def suppress(predictions: Tensor, rule: Suppression | None = None) -> list[Tensor]:
    """Decoded predictions (batch, n, 5 + classes) to boxes of each image, surest first.

    A row is left, top, right, bottom in pixels, confidence and class.
    """
    rule = rule or Suppression()
    return [_image(rows.float(), rule) for rows in predictions.detach()]


def _image(rows: Tensor, rule: Suppression) -> Tensor:
    rows = rows[rows[:, 4] > rule.confidence]
    odds = rows[:, 5:] * rows[:, 4:5]
    if rule.several_labels and odds.shape[1] > 1:
        index, label = (odds > rule.confidence).nonzero(as_tuple=True)
        sure = odds[index, label]
    else:
        sure, label = odds.max(1) if len(odds) else (odds.new_zeros(0), odds.new_zeros(0, dtype=torch.long))
        index = (sure > rule.confidence).nonzero().squeeze(1)
        sure, label = sure[index], label[index]
    if rule.classes is not None:
        wanted = torch.isin(label, torch.tensor(rule.classes, device=label.device, dtype=label.dtype))
        index, label, sure = index[wanted], label[wanted], sure[wanted]
    sure, order = sure.sort(descending=True, stable=True)
    sure, order = sure[: rule.candidates], order[: rule.candidates]
    boxes, label = to_corners(rows[index[order], :4]), label[order]
    kept = keep(boxes, sure, torch.zeros_like(label) if rule.across_classes else label, rule.overlap, rule.limit)
    return torch.cat((boxes[kept], sure[kept, None], label[kept, None].float()), 1)


def keep(boxes: Tensor, sure: Tensor, label: Tensor, overlap: float, limit: int) -> Tensor:
    """Indices of the boxes that stay, of corners (n, 4) sorted by how sure they are; at most `limit`."""
    ready = _torchvision()
    if ready is not None and len(boxes):
        found: Tensor = ready(boxes, sure, label, overlap)
        return found[:limit]
    return keep_by_blocks(boxes, label, overlap, limit)


def keep_by_blocks(boxes: Tensor, label: Tensor, overlap: float, limit: int) -> Tensor:
    """The same in plain torch: blocks of boxes against those kept before, then against each other.

    Inside a block, "a box stays if no surer one that stays overlaps it" is applied until nothing changes: that ends
    with the greedy answer, because each box depends on surer ones only.
    """
    kept = torch.zeros(0, dtype=torch.long, device=boxes.device)
    for begin in range(0, len(boxes), _BLOCK):
        block = torch.arange(begin, min(begin + _BLOCK, len(boxes)), device=boxes.device)
        block = block[~_clashes(boxes, label, block, kept, overlap).any(1)]
        worse = _clashes(boxes, label, block, block, overlap).tril(-1)
        stays = torch.ones(len(block), dtype=torch.bool, device=boxes.device)
        while True:
            now = ~(worse & stays).any(1)
            if torch.equal(now, stays):
                break
            stays = now
        kept = torch.cat((kept, block[stays]))
        if len(kept) >= limit:
            break
    return kept[:limit]


def _clashes(boxes: Tensor, label: Tensor, these: Tensor, those: Tensor, overlap: float) -> Tensor:
    same = label[these][:, None] == label[those][None]
    return same & (iou_pairs(boxes[these], boxes[those]) > overlap)


@cache
def _torchvision() -> Callable[..., Any] | None:
    """The suppression of torchvision, if it is there and its operators are."""
    try:
        from torchvision.ops import batched_nms, nms  # noqa: PLC0415  an import that may fail in its own ways

        nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)
    except Exception:  # noqa: BLE001  whatever is wrong with it, we have our own
        return None
    found: Callable[..., Any] = batched_nms
    return found
