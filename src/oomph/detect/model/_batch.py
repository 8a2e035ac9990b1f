"""Detection batches (images, targets): split into micro-batches, or downscaled when memory runs out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  torch's convention

from ._network import MAX_STRIDE

DetectionBatch = tuple[Tensor, Tensor]
_DOWNSCALE = 0.8


def downscale_batch(batch: DetectionBatch) -> DetectionBatch:
    """Downscale the images of a batch by a fifth; targets are fractions and stay as they are.

    This is the `resize` of a guard that may make images smaller. Sides stay multiples of the largest stride.
    """
    images, targets = batch
    height, width = (_smaller_side(side) for side in images.shape[-2:])
    # Image by image, since this happens when memory is short.
    resized = [_resize(image, (height, width)) for image in images]
    return torch.stack(resized).contiguous(memory_format=torch.channels_last), targets


def _smaller_side(side: int) -> int:
    return max(int(side * _DOWNSCALE) // MAX_STRIDE * MAX_STRIDE, MAX_STRIDE)


def _resize(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize an image in fp32; uint8 pixels are rounded back."""
    resized = F.interpolate(image[None].float(), size, mode="bilinear", align_corners=False, antialias=True)[0]
    return resized.to(image.dtype) if image.is_floating_point() else resized.round().clamp(0, 255).to(image.dtype)
