"""Workspaces of cuDNN's convolutions, as measured on Hopper with cuDNN 9.19 over 345 shapes. No torch.

cuDNN computes in channels_last on tensor cores. A tensor that is laid out otherwise is converted into the workspace:
input, output and weight, with the channels padded to what the tensor cores take. The gradient of the weight is summed
up in pieces, which need room of their own. Pointwise convolutions are plain matrix products and convert nothing.
`benchmarks/results/` has the sweep that these rules were read off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..units import MIB

_SPLIT_PIECES = 13  # partial sums of a weight gradient
_MOST_SPLIT = 8 * MIB


@dataclass(frozen=True)
class Convolution:
    """The shape of a convolution.

    Attributes:
        batch: images.
        ins: input channels.
        outs: output channels.
        pixels_in: input positions, all spatial dimensions multiplied.
        pixels_out: output positions.
        kernel: taps, all spatial dimensions multiplied.
        pointwise: kernel 1, stride 1, no padding.
        groups: channel groups.
        element: bytes of a number.
        channels_last: whether the tensors are laid out as cuDNN computes.
        dims: spatial dimensions.
    """

    batch: int
    ins: int
    outs: int
    pixels_in: int
    pixels_out: int
    kernel: int
    pointwise: bool
    groups: int
    element: int
    channels_last: bool
    dims: int = 2

    @property
    def depthwise(self) -> bool:
        """Whether every channel is convolved by itself, which torch does with kernels of its own."""
        return self.groups > 1 and self.groups == self.ins

    def input(self, align: int = 1) -> int:
        """Bytes of the input, its channels padded to a multiple."""
        return self.batch * _pad(self.ins, align) * self.pixels_in * self.element

    def output(self, align: int = 1) -> int:
        """Bytes of the output, its channels padded to a multiple."""
        return self.batch * _pad(self.outs, align) * self.pixels_out * self.element

    @property
    def weight(self) -> int:
        """Bytes of the weight."""
        return self.outs * (self.ins // self.groups) * self.kernel * self.element


def forward_workspace(conv: Convolution) -> int:
    """Bytes of workspace of the forward pass."""
    return 0 if conv.depthwise else _converted(conv)


def input_gradient_workspace(conv: Convolution) -> int:
    """Bytes of workspace of the gradient of the input."""
    return 0 if conv.depthwise else _converted(conv)


def weight_gradient_workspace(conv: Convolution) -> int:
    """Bytes of workspace of the gradient of the weight."""
    if conv.depthwise:
        return _converted(conv) if _depthwise_by_cudnn(conv) else 0
    if not conv.channels_last and _direct(conv) and not _starved(conv):
        # One product a sample, summed up at the end; beyond the size of a conversion, cuDNN converts instead.
        return min(conv.batch * conv.ins * conv.outs * 4, conv.input() + conv.output())
    pieces = min(_SPLIT_PIECES * conv.weight * 4 // conv.element, _MOST_SPLIT)
    if _direct(conv) and not conv.channels_last:
        return conv.input() + conv.output() + pieces
    return _converted(conv) + pieces


def _starved(conv: Convolution) -> bool:
    """Images with so few channels for so many pixels that one product a sample wouldn't fill the GPU."""
    return conv.dims == 2 and conv.pixels_in > conv.batch * conv.ins * conv.outs // 2  # noqa: PLR2004


_LARGE_DEPTHWISE = {9: 56 * 56, 25: 28 * 28}  # taps to pixels from which on cuDNN takes over


def _depthwise_by_cudnn(conv: Convolution) -> bool:
    """Torch leaves depthwise convolutions of half precision to cuDNN where these are large and keep their size."""
    large = conv.pixels_in >= _LARGE_DEPTHWISE.get(conv.kernel, conv.pixels_in + 1)
    half = conv.element == 2  # noqa: PLR2004  bytes
    return half and large and conv.pixels_in == conv.pixels_out and not conv.channels_last


def _direct(conv: Convolution) -> bool:
    """A pointwise convolution whose images are aligned for a matrix product."""
    return conv.pointwise and conv.groups == 1 and conv.pixels_in % 4 == 0


def _converted(conv: Convolution) -> int:
    """What is converted: everything without channels_last; with it, only what isn't aligned."""
    align = 16 // conv.element  # tensor cores take 16 bytes of channels at once
    if not conv.channels_last:
        if _direct(conv):
            return 0
        # The weight of a pointwise convolution looks the same in both layouts.
        return conv.input() + conv.output() + (conv.weight if conv.kernel > 1 else 0)
    ragged = 0
    if conv.ins % align and conv.groups == 1:
        ragged += conv.input(align)
    if conv.outs % align and conv.groups == 1:
        ragged += conv.output(align)
    return ragged


def _pad(channels: int, align: int) -> int:
    return math.ceil(channels / align) * align
