"""Detection batches (images, targets): split into micro-batches, or downscaled when memory runs out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  torch's convention

from ...errors import UsageError
from ._network import MAX_STRIDE

DetectionBatch = tuple[Tensor, Tensor]
_DOWNSCALE = 0.8


def split_detection_batch(batch: DetectionBatch, micro_batches: int) -> list[DetectionBatch]:
    """Split a batch into micro-batches with sizes that differ by at most one image, larger ones first.

    Targets have a row per box, not per image, so the guard needs this as its `split`. The targets of each micro-batch
    number its images from 0.

    Raises:
        UsageError: there are more micro-batches than images.
    """
    images, targets = batch
    if not 1 <= micro_batches <= len(images):
        raise UsageError(f"{len(images)} images can't be split into {micro_batches} micro-batches", "request fewer")
    size, remainder = divmod(len(images), micro_batches)
    parts = []
    begin = 0
    for index in range(micro_batches):
        end = begin + size + (index < remainder)
        rows = targets[(targets[:, 0] >= begin) & (targets[:, 0] < end)].clone()
        rows[:, 0] -= begin
        parts.append((images[begin:end], rows))
        begin = end
    return parts


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
