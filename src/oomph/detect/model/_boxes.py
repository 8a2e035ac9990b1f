"""Box formats and overlaps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_EPS = 1e-7


def cxcywh_to_xyxy(boxes: Tensor) -> Tensor:
    """Convert center x, center y, width, height to left, top, right, bottom."""
    center, half = boxes[..., :2], boxes[..., 2:4] / 2
    return torch.cat((center - half, center + half), -1)


def xyxy_to_cxcywh(boxes: Tensor) -> Tensor:
    """Convert left, top, right, bottom to center x, center y, width, height."""
    low, high = boxes[..., :2], boxes[..., 2:4]
    return torch.cat(((low + high) / 2, high - low), -1)


def box_iou(first: Tensor, second: Tensor) -> Tensor:
    """Return the IoU of every box of (n, 4) with every box of (m, 4), corners each, as (n, m)."""
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:4], second[None, :, 2:4])
    intersection = (high - low).clamp(min=0).prod(-1)
    areas = _area(first)[:, None] + _area(second)[None]
    return intersection / (areas - intersection + _EPS)


def _area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2:4] - boxes[:, :2]).prod(-1)


def complete_iou(first: Tensor, second: Tensor) -> Tensor:
    """Return the CIoU of boxes (center, size), row by row: IoU minus center distance minus difference in aspect."""
    intersection, union, diagonal = _intersection_union_diagonal(first, second)
    iou = intersection / union
    distance = ((second[..., :2] - first[..., :2]) ** 2).sum(-1)
    aspect = 4 / math.pi**2 * (_aspect_angle(second) - _aspect_angle(first)) ** 2
    with torch.no_grad():
        # Rounding can make the IoU of equal boxes larger than 1, and so the divisor 0.
        weight = aspect / (aspect - iou + (1 + _EPS)).clamp(min=_EPS)
    return iou - (distance / diagonal + aspect * weight)


def _intersection_union_diagonal(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return intersection, union and the squared diagonal of the smallest box around both."""
    a, b = cxcywh_to_xyxy(first), cxcywh_to_xyxy(second)
    intersection = _product(
        (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    )
    enclosing = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    union = _product(first[..., 2:4]) + _product(second[..., 2:4]) - intersection + _EPS
    return intersection, union, (enclosing**2).sum(-1) + _EPS


def _product(sides: Tensor) -> Tensor:
    # Not Tensor.prod: its backward synchronizes with the GPU to look for zeros.
    return sides[..., 0] * sides[..., 1]


def _aspect_angle(boxes: Tensor) -> Tensor:
    return torch.atan(boxes[..., 2] / boxes[..., 3].clamp(min=_EPS))
