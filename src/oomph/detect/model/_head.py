"""The last layer: features of three levels to raw outputs, and raw outputs to boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

_BOX = 5  # x, y, width, height, objectness
_OBJECTS = 8.0  # an image of 640 pixels is expected to hold about so many objects
_IMAGE = 640
_SURE = 0.6


class Head(nn.Module):
    """One pointwise convolution a level; in eval mode its outputs are decoded too.

    The grid of cells is made for each call: nothing is stored that a change of size, device or precision could make
    stale.
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
        self.outputs = _BOX + classes
        self.strides = tuple(strides)
        pixels = torch.tensor(anchors, dtype=torch.float32)
        self.register_buffer("anchors", pixels / torch.tensor(strides, dtype=torch.float32).view(-1, 1, 1))
        count = pixels.shape[1]
        self.m = nn.ModuleList(nn.Conv2d(inputs, count * self.outputs, 1) for inputs in channels)
        self.start_biases()

    def start_biases(self) -> None:
        """Shift fresh biases to how rare objects and classes are, so that training doesn't begin by unlearning."""
        classes = self.outputs - _BOX
        with torch.no_grad():
            for layer, stride in zip(self.m, self.strides, strict=True):
                assert isinstance(layer, nn.Conv2d)  # noqa: S101  built so above
                assert layer.bias is not None  # noqa: S101
                table = layer.bias.view(-1, self.outputs)
                table[:, 4] += math.log(_OBJECTS / (_IMAGE / stride) ** 2)
                table[:, _BOX:] += math.log(_SURE / (classes - 0.99999))

    def forward(self, features: Sequence[Tensor]) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Raw levels (batch, anchors, h, w, 5 + classes); in eval mode decoded predictions before them."""
        raw = []
        for layer, feature in zip(self.m, features, strict=True):
            x = layer(feature)
            batch, _, height, width = x.shape
            # No copy: the loss reads one column and a few rows of it.
            raw.append(x.view(batch, -1, self.outputs, height, width).permute(0, 1, 3, 4, 2))
        if self.training:
            return raw
        boxes = [self.decode(level, index) for index, level in enumerate(raw)]
        return torch.cat([level.flatten(1, 3) for level in boxes], 1), raw

    def decode(self, raw: Tensor, index: int) -> Tensor:
        """One raw level as boxes in pixels, objectness and class probabilities, in fp32."""
        height, width = raw.shape[2:4]
        stride = self.strides[index]
        share = raw.float().sigmoid()
        rows = torch.arange(height, device=raw.device, dtype=torch.float32).view(height, 1).expand(height, width)
        columns = torch.arange(width, device=raw.device, dtype=torch.float32).expand(height, width)
        cells = torch.stack((columns, rows), -1)
        anchors = (self.anchors[index].float() * stride).view(1, -1, 1, 1, 2)
        centre = (share[..., :2] * 2 - 0.5 + cells) * stride
        size = (share[..., 2:4] * 2) ** 2 * anchors
        return torch.cat((centre, size, share[..., 4:]), -1)
