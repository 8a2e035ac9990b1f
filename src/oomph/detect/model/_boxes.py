"""Boxes: their two forms, how much two of them overlap, and back from a letterboxed image to the original."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_EPS = 1e-7


def to_corners(boxes: Tensor) -> Tensor:
    """Centre x, centre y, width, height to left, top, right, bottom."""
    centre, half = boxes[..., :2], boxes[..., 2:4] / 2
    return torch.cat((centre - half, centre + half), -1)


def to_centres(boxes: Tensor) -> Tensor:
    """Left, top, right, bottom to centre x, centre y, width, height."""
    low, high = boxes[..., :2], boxes[..., 2:4]
    return torch.cat(((low + high) / 2, high - low), -1)


def iou_pairs(first: Tensor, second: Tensor) -> Tensor:
    """The overlap of every box of (n, 4) corners with every box of (m, 4), as (n, m)."""
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:4], second[None, :, 2:4])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = _area(first)[:, None] + _area(second)[None]
    return shared / (areas - shared + _EPS)


def _area(boxes: Tensor) -> Tensor:
    return (boxes[:, 2:4] - boxes[:, :2]).prod(-1)


def complete_iou(first: Tensor, second: Tensor) -> Tensor:
    """CIoU of boxes given by centre and size, row by row: overlap, less distance of centres and difference in shape."""
    shared, union, reach = _spans(first, second)
    iou = shared / union
    distance = ((second[..., :2] - first[..., :2]) ** 2).sum(-1)
    shape = 4 / math.pi**2 * (_tilt(second) - _tilt(first)) ** 2
    with torch.no_grad():
        weight = shape / (shape - iou + (1 + _EPS))
    return iou - (distance / reach + shape * weight)


def _spans(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shared area, united area, and the squared diagonal of the smallest box around both."""
    a, b = to_corners(first), to_corners(second)
    shared = _times((torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0))
    around = torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])
    union = _times(first[..., 2:4]) + _times(second[..., 2:4]) - shared + _EPS
    return shared, union, (around**2).sum(-1) + _EPS


def _times(sides: Tensor) -> Tensor:
    """Width times height. Not by `prod`, whose backward waits for the GPU to tell whether there are zeros."""
    return sides[..., 0] * sides[..., 1]


def _tilt(boxes: Tensor) -> Tensor:
    return torch.atan(boxes[..., 2] / boxes[..., 3].clamp(min=_EPS))


def clip(boxes: Tensor, height: float, width: float) -> Tensor:
    """Corners moved into the image."""
    limits = boxes.new_tensor([width, height, width, height])
    return torch.minimum(boxes.clamp(min=0), limits)
