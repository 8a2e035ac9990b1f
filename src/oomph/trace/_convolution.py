"""Workspaces of cuDNN's convolutions, as measured on Hopper with cuDNN 9.19. No torch.

cuDNN computes in channels_last on tensor cores. A tensor that is laid out otherwise is converted into the workspace:
input, output and weight, with the channels padded to what the tensor cores take. The gradient of the weight is summed
up in pieces, as many as fill the GPU, which need room of their own. Pointwise convolutions are plain matrix products
and convert nothing; images of a first layer are read as they are. The rules were read off a sweep of 345 shapes
(`benchmarks/results/`) and three recorded steps of 75 networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_SINGLE, _HALF = 4, 2  # bytes of a number
_FEW = 4  # channels of an image
_SHORT = {_SINGLE: 128, _HALF: 64}  # so many products make one output at most, where images are read as they are
_FULL = 1 << 15  # threads that keep a GPU busy
_LARGE_PRODUCT = 1 << 20
_DEAR = {_SINGLE: 2.5, _HALF: 1.2}  # how much more than a conversion cuDNN spends on products a sample
_TILE = 128  # channels that a multiprocessor takes at once; where there are few of them, half as many
_PIECE = 1200  # the fewest pixels that are worth a partial sum of their own
_LONG_PIECE = 5500  # the same where half precision and full tiles make the sums quick
_FEWEST_PIECES = 3
_DEPTHWISE_PIECES = 8
_SMALL_IMAGE = {9: 7 * 7, 25: 14 * 14, 49: 28 * 28}  # taps to pixels


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
        bfloat16: whether the numbers are bfloat16, of which cuDNN has fewer kernels than of float16.
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
    bfloat16: bool = False

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
        return self.weight_of(self.ins // self.groups, self.outs)

    @property
    def align(self) -> int:
        """Channels in the 16 bytes that tensor cores take at once."""
        return 16 // self.element

    def weight_of(self, ins: int, outs: int) -> int:
        """Bytes of the weight if it had so many channels."""
        return outs * ins * self.kernel * self.element


def forward_workspace(conv: Convolution) -> int:
    """Bytes of workspace of the forward pass."""
    if conv.depthwise or _short(conv) or _direct(conv):
        return 0
    size = _converted(conv, _input_padding(conv), conv.align if conv.bfloat16 else 1)
    return size - conv.output() if _written_as_wanted(conv) else size


def input_gradient_workspace(conv: Convolution) -> int:
    """Bytes of workspace of the gradient of the input."""
    if conv.depthwise or _direct(conv, gradient=True):
        return 0
    if conv.ins <= _FEW and conv.groups == 1 and conv.element == _SINGLE:
        return conv.input() + conv.output() + conv.weight if conv.channels_last else 0
    return _converted(conv, conv.align if conv.element == _HALF else 1, conv.align)


def weight_gradient_workspace(conv: Convolution, processors: int = 132) -> int:
    """Bytes of workspace of the gradient of the weight on a GPU with so many multiprocessors."""
    if conv.depthwise:
        return _depthwise_sums(conv)
    if conv.pointwise and conv.pixels_in == 1:
        return 0  # a plain matrix product
    if conv.pointwise and conv.groups == 1 and not conv.channels_last and not _starved(conv):
        # One product a sample, summed up at the end; where that is far more than a conversion, cuDNN converts.
        samples = conv.batch * conv.ins * conv.outs * 4
        if samples <= _DEAR.get(conv.element, 1) * (conv.input() + conv.output()):
            return samples
    if _short(conv) and conv.element == _SINGLE and conv.dims == 2:  # noqa: PLR2004
        return 0
    return _converted(conv, _input_padding(conv, gradient=True), conv.align) + _partial_sums(conv, processors)


def _short(conv: Convolution) -> bool:
    """Few channels and taps, as in a first layer: cuDNN reads such images as they are."""
    return conv.groups == 1 and conv.ins <= _FEW and conv.ins * conv.kernel <= _SHORT.get(conv.element, 0)


def _written_as_wanted(conv: Convolution) -> bool:
    """In fp32, where half a tile of channels makes more of them, outputs are written without a conversion."""
    grows = _FEW < conv.ins <= _TILE // 2 < conv.outs
    return grows and conv.element == _SINGLE and conv.groups == 1 and not conv.channels_last


def _stem(conv: Convolution) -> bool:
    """The first layer of ResNets, for which cuDNN has kernels of their own in fp16: they take four channels."""
    halved = conv.dims == 2 and conv.pixels_in == 4 * conv.pixels_out  # noqa: PLR2004
    return conv.ins <= _FEW and conv.kernel == 7 * 7 and halved and conv.element == _HALF and not conv.bfloat16


def _input_padding(conv: Convolution, *, gradient: bool = False) -> int:
    """What the channels of the input are padded to a multiple of."""
    if _stem(conv):
        return _FEW
    return conv.align if conv.bfloat16 or gradient else 1


def _direct(conv: Convolution, *, gradient: bool = False) -> bool:
    """A pointwise convolution without channels_last that is one matrix product an image.

    CuDNN converts where products are large and images aren't aligned, or are for a gradient (but for float16, which
    has the most kernels); and, in the forward pass of half precision, where many tiny images aren't aligned.
    """
    if not conv.pointwise or conv.groups > 1 or conv.channels_last:
        return False
    aligned = conv.pixels_in % 4 == 0
    float16 = conv.element == _HALF and not conv.bfloat16
    if conv.ins * conv.outs >= _LARGE_PRODUCT and not (aligned and (float16 or not gradient)):
        return False
    tiny = conv.element == _HALF and conv.pixels_in < 2 * conv.batch
    return aligned or gradient or not tiny


def _starved(conv: Convolution) -> bool:
    """So few channels for so many pixels that one product a sample wouldn't fill the GPU."""
    sums, pixels = conv.batch * conv.ins * conv.outs, conv.batch * conv.pixels_in
    return conv.dims == 2 and conv.element == _SINGLE and sums <= _FULL <= pixels  # noqa: PLR2004


def _depthwise_sums(conv: Convolution) -> int:
    """In channels_last cuDNN takes over, and sums up a sample in pieces where images are small and taps many."""
    if conv.channels_last and conv.element == _HALF and conv.pixels_in <= _SMALL_IMAGE.get(conv.kernel, 0):
        return conv.batch * conv.ins * conv.kernel * 4 * _DEPTHWISE_PIECES
    return 0


def _converted(conv: Convolution, ins: int, outs: int) -> int:
    """What is converted: everything without channels_last; with it, only what isn't aligned.

    Args:
        conv: the convolution.
        ins: what input channels are padded to a multiple of.
        outs: the same for output channels.
    """
    if conv.groups > 1:
        return _converted_groups(conv)
    weight = conv.weight_of(_pad(conv.ins, ins), _pad(conv.outs, outs)) if conv.kernel > 1 else 0
    if not conv.channels_last:
        return conv.input(ins) + conv.output(outs) + weight
    if conv.pointwise:
        return 0
    ragged = (conv.input(ins) if conv.ins % ins else 0) + (conv.output(outs) if conv.outs % outs else 0)
    return ragged + weight if ragged else 0


def _converted_groups(conv: Convolution) -> int:
    """Channels of a group are padded to a power of two."""
    if conv.channels_last:
        return 0
    ins, outs = conv.ins // conv.groups, conv.outs // conv.groups
    wide_in, wide_out = _power(ins), _power(outs)
    return (
        conv.input() * wide_in // ins
        + conv.output() * wide_out // outs
        + conv.weight * wide_in * wide_out // (ins * outs) * (conv.kernel > 1)
    )


def _partial_sums(conv: Convolution, processors: int) -> int:
    """The gradient of the weight is a small product over all pixels: they are shared out until the GPU is full."""
    ins = _pad(conv.ins // conv.groups, conv.align)
    rows, columns = (_TILE if channels > _TILE // 2 else _TILE // 2 for channels in (conv.outs, ins))
    across = math.ceil(ins / columns) * conv.kernel if ins >= columns else math.ceil(ins * conv.kernel / columns)
    tiles = math.ceil(conv.outs / rows) * across
    wide = conv.element == _HALF and rows == columns == _TILE and not (conv.pointwise and conv.channels_last)
    pieces = min(conv.batch * conv.pixels_out // (_LONG_PIECE if wide else _PIECE), processors // tiles)
    if pieces < _FEWEST_PIECES:
        return 0
    return pieces * (conv.outs * ins * 4 if conv.kernel == 1 else tiles * rows * columns * 4)


def _pad(channels: int, align: int) -> int:
    return math.ceil(channels / align) * align


def _power(channels: int) -> int:
    return 1 << (channels - 1).bit_length()
