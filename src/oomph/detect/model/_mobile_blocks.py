"""Blocks of the small backbones, written from the tables of their papers.

MobileNetV3 (Howard et al. 2019, arXiv 1905.02244), ShuffleNetV2 (Ma et al. 2018, arXiv 1807.11164), and
depthwise-separable convolutions (Howard et al. 2017, arXiv 1704.04861).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  torch's convention

from ._blocks import BN_EPS, BN_MOMENTUM, Conv

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {"silu": F.silu, "relu": F.relu, "hardswish": F.hardswish}


class ConvNorm(nn.Module):
    """Convolution without bias, BatchNorm, and an activation if there is one."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, activation: Activation | None, *, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=BN_EPS, momentum=BN_MOMENTUM)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Apply convolution, BatchNorm and activation."""
        y: Tensor = self.bn(self.conv(x))
        return y if self.activation is None else self.activation(y)


def _depthwise(channels: int, kernel: int, stride: int, activation: Activation | None) -> ConvNorm:
    """Return a convolution of each channel by itself."""
    return ConvNorm(channels, channels, kernel, stride, activation, groups=channels)


class SeparableConv(nn.Module):
    """A depthwise and a 1x1 convolution in place of a spatial one, both with BatchNorm and SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.depthwise = _depthwise(inputs, kernel, stride, F.silu)
        self.point = Conv(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Apply both convolutions."""
        y: Tensor = self.point(self.depthwise(x))
        return y


class SqueezeExcitation(nn.Module):
    """Scales each channel by a factor from 0 to 1 that follows from the means of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = _round_to_8(channels / 4)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled channels."""
        means = F.adaptive_avg_pool2d(x, 1)
        return x * F.hardsigmoid(self.expand(F.relu(self.reduce(means))))


def _round_to_8(channels: float) -> int:
    """Round to a multiple of 8, half up."""
    return int(channels + 4) // 8 * 8


@dataclass(frozen=True)
class Bneck:
    """Options of an inverted residual, the columns of MobileNetV3's tables.

    Attributes:
        kernel: side of its depthwise convolution.
        stride: of its depthwise convolution.
        expanded: channels inside.
        squeeze: True if it has squeeze-and-excitation.
        activation: its nonlinearity.
    """

    kernel: int
    stride: int
    expanded: int
    squeeze: bool
    activation: Activation


class InvertedResidual(nn.Module):
    """MobileNetV3's block: expansion, depthwise convolution, squeeze-and-excitation, projection.

    The input is added to the output where they have the same shape.
    """

    def __init__(self, inputs: int, outputs: int, options: Bneck) -> None:
        super().__init__()
        expanded = options.expanded
        self.expand = ConvNorm(inputs, expanded, 1, 1, options.activation) if expanded != inputs else nn.Identity()
        self.depthwise = _depthwise(expanded, options.kernel, options.stride, options.activation)
        self.squeeze = SqueezeExcitation(expanded) if options.squeeze else nn.Identity()
        self.project = ConvNorm(expanded, outputs, 1, 1, None)
        self.shortcut = options.stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return a feature map with height and width divided by the stride."""
        y: Tensor = self.project(self.squeeze(self.depthwise(self.expand(x))))
        return x + y if self.shortcut else y


class ShuffleUnit(nn.Module):
    """ShuffleNetV2's basic unit: one half of the channels passes, the other is convolved; then both are mixed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.branch = _shuffle_branch(channels // 2, channels // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a feature map of the input's shape."""
        passed, convolved = x.chunk(2, 1)
        return shuffle_channels(torch.cat((passed, self.branch(convolved)), 1))


class ShuffleDown(nn.Module):
    """ShuffleNetV2's unit for downsampling: two branches convolve all channels with stride 2; then both are mixed."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.side = nn.Sequential(_depthwise(inputs, 3, 2, None), ConvNorm(inputs, half, 1, 1, F.relu))
        self.branch = _shuffle_branch(inputs, half, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return a feature map of half the height and width."""
        return shuffle_channels(torch.cat((self.side(x), self.branch(x)), 1))


def _shuffle_branch(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        ConvNorm(inputs, outputs, 1, 1, F.relu),
        _depthwise(outputs, 3, stride, None),
        ConvNorm(outputs, outputs, 1, 1, F.relu),
    )


def shuffle_channels(x: Tensor) -> Tensor:
    """Interleave the two halves of the channels; the memory format stays."""
    batch, channels, height, width = x.shape
    if x.is_contiguous(memory_format=torch.channels_last):
        # Reshaping in the order of the memory: otherwise the copy would be contiguous, and every convolution after it
        # would convert its input.
        pairs = x.permute(0, 2, 3, 1).view(batch, height, width, 2, channels // 2).transpose(3, 4)
        return pairs.reshape(batch, height, width, channels).permute(0, 3, 1, 2)
    return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, channels, height, width)
