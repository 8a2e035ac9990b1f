"""Non-maximum suppression: of boxes that overlap, the most confident one is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ._boxes import box_iou, cxcywh_to_xyxy

_BLOCK_SIZE = 512


@dataclass(frozen=True)
class NmsConfig:
    """Thresholds that turn predictions into boxes, under YOLOv5's names.

    Attributes:
        conf_thres: minimum confidence of a box.
        iou_thres: of two boxes of a class that overlap more, the more confident one is kept.
        max_det: maximum number of boxes per image.
        multi_label: keep every class of a box above the threshold, not only the most likely one.
        max_nms: maximum number of boxes that are compared, the most confident ones.
        classes: classes to keep; all if None.
        agnostic: suppress boxes of other classes as well.
    """

    conf_thres: float = 0.25
    iou_thres: float = 0.45
    max_det: int = 300
    multi_label: bool = False
    max_nms: int = 30_000
    classes: tuple[int, ...] | None = None
    agnostic: bool = False


VAL_NMS = NmsConfig(conf_thres=0.001, iou_thres=0.6, multi_label=True)


def nms(predictions: Tensor, config: NmsConfig | None = None) -> list[Tensor]:
    """Reduce decoded predictions (batch, n, 5 + classes) to the boxes of each image, most confident first.

    A row is left, top, right, bottom in pixels, confidence and class.
    """
    config = config or NmsConfig()
    return [_nms_image(rows.float(), config) for rows in predictions.detach()]


def _nms_image(rows: Tensor, config: NmsConfig) -> Tensor:
    rows = rows[rows[:, 4] > config.conf_thres]
    scores = rows[:, 5:] * rows[:, 4:5]
    if config.multi_label and scores.shape[1] > 1:
        index, label = (scores > config.conf_thres).nonzero(as_tuple=True)
        confidence = scores[index, label]
    else:
        empty = scores.new_zeros(0), scores.new_zeros(0, dtype=torch.long)
        confidence, label = scores.max(1) if len(scores) else empty
        index = (confidence > config.conf_thres).nonzero().squeeze(1)
        confidence, label = confidence[index], label[index]
    if config.classes is not None:
        wanted = torch.isin(label, torch.tensor(config.classes, device=label.device, dtype=label.dtype))
        index, label, confidence = index[wanted], label[wanted], confidence[wanted]
    confidence, order = confidence.sort(descending=True, stable=True)
    confidence, order = confidence[: config.max_nms], order[: config.max_nms]
    boxes, label = cxcywh_to_xyxy(rows[index[order], :4]), label[order]
    group = torch.zeros_like(label) if config.agnostic else label
    kept = _nms_indices(boxes, confidence, group, config)
    return torch.cat((boxes[kept], confidence[kept, None], label[kept, None].float()), 1)


def _nms_indices(boxes: Tensor, confidence: Tensor, group: Tensor, config: NmsConfig) -> Tensor:
    batched_nms = _torchvision_nms()
    if batched_nms is not None and len(boxes):
        kept: Tensor = batched_nms(boxes, confidence, group, config.iou_thres)
        return kept[: config.max_det]
    return nms_indices(boxes, group, config.iou_thres, config.max_det)


def nms_indices(boxes: Tensor, group: Tensor, iou_thres: float, max_det: int) -> Tensor:
    """Return the indices of the boxes to keep, from corners (n, 4) sorted by confidence; only within a group.

    Plain torch: a block of boxes is compared with the boxes kept so far, then with itself. Inside a block, "keep a box
    unless a kept, more confident one overlaps it" is iterated until nothing changes. That ends with the greedy result
    because each box depends on more confident ones only.
    """
    kept = torch.zeros(0, dtype=torch.long, device=boxes.device)
    for begin in range(0, len(boxes), _BLOCK_SIZE):
        block = torch.arange(begin, min(begin + _BLOCK_SIZE, len(boxes)), device=boxes.device)
        block = block[~_overlaps(boxes, group, block, kept, iou_thres).any(1)]
        suppresses = _overlaps(boxes, group, block, block, iou_thres).tril(-1)
        keep = torch.ones(len(block), dtype=torch.bool, device=boxes.device)
        while True:
            updated = ~(suppresses & keep).any(1)
            if torch.equal(updated, keep):
                break
            keep = updated
        kept = torch.cat((kept, block[keep]))
        if len(kept) >= max_det:
            break
    return kept[:max_det]


def _overlaps(boxes: Tensor, group: Tensor, first: Tensor, second: Tensor, iou_thres: float) -> Tensor:
    same = group[first][:, None] == group[second][None]
    return same & (box_iou(boxes[first], boxes[second]) > iou_thres)


@cache
def _torchvision_nms() -> Callable[..., Any] | None:
    """Return torchvision's batched NMS if it is installed and its operators work."""
    try:
        from torchvision.ops import batched_nms, nms  # noqa: PLC0415  optional

        nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)
    except Exception:  # noqa: BLE001  a broken installation raises many kinds; plain torch works without it
        return None
    function: Callable[..., Any] = batched_nms
    return function
