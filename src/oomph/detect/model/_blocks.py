"""The blocks that the network is made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_EPS, _MOMENTUM = 1e-3, 0.03


class Conv(nn.Module):
    """Convolution without bias, batch norm, SiLU.

    SiLU works out of place: in place, autograd would keep a copy of its input, so that nothing is saved and a copy is
    paid for.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, padding: int | None = None) -> None:
        super().__init__()
        padding = kernel // 2 if padding is None else padding
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=_EPS, momentum=_MOMENTUM)

    def forward(self, x: Tensor) -> Tensor:
        """One feature map to another."""
        return nn.functional.silu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    """A pointwise and a 3x3 convolution, with the input added where `shortcut` is on."""

    def __init__(self, channels: int, *, shortcut: bool) -> None:
        super().__init__()
        self.cv1 = Conv(channels, channels)
        self.cv2 = Conv(channels, channels, 3)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """One feature map to another of the same shape."""
        y: Tensor = self.cv2(self.cv1(x))
        return x + y if self.shortcut else y


class C3(nn.Module):
    """Two halves of the channels, one of them through bottlenecks, joined by a pointwise convolution."""

    def __init__(self, inputs: int, outputs: int, repeats: int, *, shortcut: bool = True) -> None:
        super().__init__()
        hidden = outputs // 2
        self.cv1 = Conv(inputs, hidden)
        self.cv2 = Conv(inputs, hidden)
        self.cv3 = Conv(2 * hidden, outputs)
        self.m = nn.Sequential(*(Bottleneck(hidden, shortcut=shortcut) for _ in range(repeats)))

    def forward(self, x: Tensor) -> Tensor:
        """One feature map to another."""
        joined: Tensor = self.cv3(torch.cat((self.m(self.cv1(x)), self.cv2(x)), 1))
        return joined


class SPPF(nn.Module):
    """Three max-pools one after another, each seeing wider, joined with what they started from."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        hidden = inputs // 2
        self.cv1 = Conv(inputs, hidden)
        self.cv2 = Conv(4 * hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """One feature map to another."""
        seen: list[Tensor] = [self.cv1(x)]
        for _ in range(3):
            seen.append(nn.functional.max_pool2d(seen[-1], 5, 1, 2))
        joined: Tensor = self.cv2(torch.cat(seen, 1))
        return joined


class Upsample(nn.Module):
    """Each pixel becomes four."""

    def forward(self, x: Tensor) -> Tensor:
        """Double height and width."""
        return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")


class Concat(nn.Module):
    """Two feature maps of one size, joined along channels."""

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """The two as one."""
        return torch.cat((first, second), 1)
