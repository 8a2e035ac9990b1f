"""Batches of images made smaller, for a step that doesn't fit otherwise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  torch's own name for it

from ._network import STRIDES

_SHARE = 0.8  # of a side that is left


def shrink_batch(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """A batch (images, targets) with smaller images; targets are fractions of them and stay.

    This is the `resize` of a guard that may make images smaller. Sides stay multiples of the largest stride.
    """
    images, targets = batch
    height, width = (_less(side) for side in images.shape[-2:])
    # One by one: this happens when memory is short. Bytes are resized as numbers and rounded back.
    found = [_resize(image, (height, width)) for image in images]
    return torch.stack(found).contiguous(memory_format=torch.channels_last), targets


def _less(side: int) -> int:
    stride = STRIDES[-1]
    return max(int(side * _SHARE) // stride * stride, stride)


def _resize(image: Tensor, size: tuple[int, int]) -> Tensor:
    smaller = F.interpolate(image[None].float(), size, mode="bilinear", align_corners=False, antialias=True)[0]
    return smaller.to(image.dtype) if image.is_floating_point() else smaller.round().clamp(0, 255).to(image.dtype)
