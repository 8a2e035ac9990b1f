"""Building blocks of the network."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

BN_EPS, BN_MOMENTUM = 1e-3, 0.03


class Conv(nn.Module):
    """Convolution without bias, BatchNorm, SiLU.

    SiLU isn't in-place: autograd would then save a copy of its input, which costs time and saves no memory.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, padding: int | None = None) -> None:
        super().__init__()
        padding = kernel // 2 if padding is None else padding
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=BN_EPS, momentum=BN_MOMENTUM)

    def forward(self, x: Tensor) -> Tensor:
        """Apply convolution, BatchNorm and SiLU."""
        return nn.functional.silu(self.bn(self.conv(x)))


SpatialConv = Callable[[int, int, int], nn.Module]  # inputs, outputs, kernel


class Bottleneck(nn.Module):
    """A 1x1 and a 3x3 convolution, which `spatial` builds; `shortcut` adds the input to the output."""

    def __init__(self, channels: int, *, shortcut: bool, spatial: SpatialConv = Conv) -> None:
        super().__init__()
        self.cv1 = Conv(channels, channels)
        self.cv2 = spatial(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return a feature map of the input's shape."""
        y: Tensor = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C3(nn.Module):
    """Two 1x1 branches, one of them through bottlenecks, joined by a 1x1 convolution."""

    def __init__(
        self, inputs: int, outputs: int, repeats: int, *, shortcut: bool = True, spatial: SpatialConv = Conv
    ) -> None:
        super().__init__()
        hidden = outputs // 2
        self.cv1 = Conv(inputs, hidden)
        self.cv2 = Conv(inputs, hidden)
        self.cv3 = Conv(2 * hidden, outputs)
        self.m = nn.Sequential(*(Bottleneck(hidden, shortcut=shortcut, spatial=spatial) for _ in range(repeats)))

    def forward(self, x: Tensor) -> Tensor:
        """Return a feature map of the same height and width."""
        y: Tensor = self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))
        return y


class SPPF(nn.Module):
    """Three max-pools in sequence, concatenated with their input (spatial pyramid pooling, fast)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        hidden = inputs // 2
        self.cv1 = Conv(inputs, hidden)
        self.cv2 = Conv(4 * hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return a feature map of the same height and width."""
        pooled: list[Tensor] = [self.cv1(x)]
        for _ in range(3):
            pooled.append(nn.functional.max_pool2d(pooled[-1], 5, 1, 2))
        y: Tensor = self.cv2(torch.cat(pooled, 1))
        return y


class Upsample(nn.Module):
    """Nearest-neighbor upsampling by two."""

    def forward(self, x: Tensor) -> Tensor:
        """Double height and width."""
        return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")


class Concat(nn.Module):
    """Concatenation of two feature maps along the channels."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Concatenate two feature maps of the same height and width."""
        return torch.cat((first, second), 1)
