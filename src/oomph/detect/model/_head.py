"""The last layer: features of three levels to raw outputs, and raw outputs to boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

_BOX_OUTPUTS = 5  # x, y, width, height, objectness
_EXPECTED_OBJECTS = 8.0  # per image of 640 pixels
_REFERENCE_IMGSZ = 640
_EXPECTED_CLASS_PROBABILITY = 0.6


class Head(nn.Module):
    """One 1x1 convolution per level; in eval mode its outputs are decoded as well.

    The grid of cells is built for each call, so nothing goes stale when size, device or precision change.
    """

    anchors: Tensor

    def __init__(
        self,
        channels: Sequence[int],
        classes: int,
        anchors: Sequence[Sequence[Sequence[float]]],
        strides: Sequence[int],
    ) -> None:
        super().__init__()
        self.outputs = _BOX_OUTPUTS + classes
        self.strides = tuple(strides)
        pixels = torch.tensor(anchors, dtype=torch.float32)
        self.register_buffer("anchors", pixels / torch.tensor(strides, dtype=torch.float32).view(-1, 1, 1))
        count = pixels.shape[1]
        self.m = nn.ModuleList(nn.Conv2d(inputs, count * self.outputs, 1) for inputs in channels)
        self.init_biases()

    def init_biases(self) -> None:
        """Set the biases to the expected rates of objects and classes, so that training doesn't start with a spike."""
        classes = self.outputs - _BOX_OUTPUTS
        with torch.no_grad():
            for layer, stride in zip(self.m, self.strides, strict=True):
                assert isinstance(layer, nn.Conv2d)  # noqa: S101  for the type checker
                assert layer.bias is not None  # noqa: S101
                bias = layer.bias.view(-1, self.outputs)
                bias[:, 4] += math.log(_EXPECTED_OBJECTS / (_REFERENCE_IMGSZ / stride) ** 2)
                bias[:, _BOX_OUTPUTS:] += math.log(_EXPECTED_CLASS_PROBABILITY / (classes - 0.99999))

    def forward(self, features: Sequence[Tensor]) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Return raw levels (batch, anchors, h, w, 5 + classes); in eval mode (decoded predictions, raw levels)."""
        raw = self.raw_levels(features)
        if self.training:
            return raw
        boxes = [self.decode(level, index) for index, level in enumerate(raw)]
        return torch.cat([level.flatten(1, 3) for level in boxes], 1), raw

    def raw_levels(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return raw levels (batch, anchors, h, w, 5 + classes) in any mode."""
        return [raw_level(layer(feature), self.outputs) for layer, feature in zip(self.m, features, strict=True)]

    def decode(self, raw: Tensor, index: int) -> Tensor:
        """Decode one raw level into boxes in pixels, objectness and class probabilities, in fp32."""
        stride = self.strides[index]
        return decode_level(raw, self.anchors[index].float() * stride, stride)


def raw_level(output: Tensor, outputs: int) -> Tensor:
    """Return the output of a convolution (batch, anchors * outputs, h, w) as (batch, anchors, h, w, outputs)."""
    batch, _, height, width = output.shape
    # A view, not a copy: the loss reads one column and a few rows of it.
    return output.view(batch, -1, outputs, height, width).permute(0, 1, 3, 4, 2)


def decode_level(raw: Tensor, anchors: Tensor, stride: int) -> Tensor:
    """Decode a raw level into boxes in pixels, objectness and class probabilities, in fp32; anchors are in pixels."""
    height, width = raw.shape[2:4]
    sigmoid = raw.float().sigmoid()
    rows = torch.arange(height, device=raw.device, dtype=torch.float32).view(height, 1).expand(height, width)
    columns = torch.arange(width, device=raw.device, dtype=torch.float32).expand(height, width)
    cells = torch.stack((columns, rows), -1)
    center = (sigmoid[..., :2] * 2 - 0.5 + cells) * stride
    size = (sigmoid[..., 2:4] * 2) ** 2 * anchors.view(1, -1, 1, 1, 2)
    return torch.cat((center, size, sigmoid[..., 4:]), -1)
