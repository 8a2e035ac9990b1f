"""Workspaces of cuDNN convolutions, as measured on Hopper with cuDNN 9.19. No torch.

cuDNN computes in channels_last on tensor cores. It converts tensors of another layout into the workspace: input, output
and weight, with channels padded to what the tensor cores accept. The gradient of the weight is computed as partial
sums, as many as fill the GPU, which also live in the workspace. Pointwise convolutions are plain matrix products and
convert nothing. The images of a first layer are read without conversion. The rules were derived from a sweep of 345
shapes (`benchmarks/results/`) and three recorded steps of 75 networks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_SINGLE, _HALF = 4, 2  # bytes per element
_MAX_IMAGE_CHANNELS = 4
_MAX_DIRECT_PRODUCTS = {_SINGLE: 128, _HALF: 64}  # products per output up to which images are read unconverted
_BUSY_THREADS = 1 << 15  # threads that keep a GPU busy
_LARGE_PRODUCT = 1 << 20
_MAX_PRODUCT_RATIO = {_SINGLE: 3, _HALF: 1.2}  # bytes of per-sample products over those of a conversion
_TILE = 128  # channels that a multiprocessor computes at once; half as many where there are few channels
_MIN_PIXELS_PER_SUM = 1200  # fewer pixels aren't worth another partial sum
_MIN_PIXELS_PER_FAST_SUM = 5500  # in half precision with full tiles, where sums are fast
_MIN_PARTIAL_SUMS = 3
_DEPTHWISE_PARTIAL_SUMS = 8
_SMALL_IMAGE_PIXELS = {9: 7 * 7, 25: 14 * 14, 49: 28 * 28}  # by kernel taps


@dataclass(frozen=True)
class ConvolutionShape:
    """The shape of a convolution.

    Attributes:
        batch: number of images.
        in_channels: input channels.
        out_channels: output channels.
        in_pixels: input positions, all spatial dimensions multiplied.
        out_pixels: output positions.
        taps: kernel positions, all spatial dimensions multiplied.
        pointwise: True for kernel 1, stride 1 and no padding.
        groups: channel groups.
        element_size: bytes per element.
        channels_last: True if the tensors are in the layout that cuDNN computes in.
        dims: spatial dimensions.
        bfloat16: True for bfloat16, for which cuDNN has fewer kernels than for float16.
    """

    batch: int
    in_channels: int
    out_channels: int
    in_pixels: int
    out_pixels: int
    taps: int
    pointwise: bool
    groups: int
    element_size: int
    channels_last: bool
    dims: int = 2
    bfloat16: bool = False

    @property
    def depthwise(self) -> bool:
        """True if each channel is convolved separately, which torch does without cuDNN."""
        return self.groups > 1 and self.groups == self.in_channels

    def input_bytes(self, align: int = 1) -> int:
        """Return the bytes of the input with its channels padded to a multiple of `align`."""
        return self.batch * _pad(self.in_channels, align) * self.in_pixels * self.element_size

    def output_bytes(self, align: int = 1) -> int:
        """Return the bytes of the output with its channels padded to a multiple of `align`."""
        return self.batch * _pad(self.out_channels, align) * self.out_pixels * self.element_size

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weight."""
        return self.weight_bytes_for(self.in_channels // self.groups, self.out_channels)

    @property
    def align(self) -> int:
        """Number of channels in the 16 bytes that tensor cores load at once."""
        return 16 // self.element_size

    def weight_bytes_for(self, in_channels: int, out_channels: int) -> int:
        """Return the bytes of a weight with these channels."""
        return out_channels * in_channels * self.taps * self.element_size


def forward_workspace(conv: ConvolutionShape, *, convert_output: bool = False) -> int:
    """Return the workspace bytes of the forward pass; `convert_output` if no kernel writes outputs directly."""
    if conv.depthwise or _reads_images_directly(conv) or _is_matrix_product(conv):
        return 0
    size = _converted_bytes(conv, _input_alignment(conv), conv.align if conv.bfloat16 else 1)
    return size - conv.output_bytes() if _writes_output_directly(conv) and not convert_output else size


def input_gradient_workspace(conv: ConvolutionShape) -> int:
    """Return the workspace bytes of the input's gradient."""
    if conv.depthwise or _is_matrix_product(conv, gradient=True):
        return 0
    if conv.in_channels <= _MAX_IMAGE_CHANNELS and conv.groups == 1 and conv.element_size == _SINGLE:
        return conv.input_bytes() + conv.output_bytes() + conv.weight_bytes if conv.channels_last else 0
    return _converted_bytes(conv, conv.align if conv.element_size == _HALF else 1, conv.align)


def weight_gradient_workspace(conv: ConvolutionShape, processors: int = 132) -> int:
    """Return the workspace bytes of the weight's gradient on a GPU with this number of multiprocessors."""
    if conv.depthwise:
        return _depthwise_partial_sums(conv)
    if conv.pointwise and conv.in_pixels == 1:
        return 0  # a plain matrix product
    if conv.pointwise and conv.groups == 1 and not conv.channels_last and not _underfills_gpu(conv):
        # One product per sample, summed at the end. Where the products are much larger than a conversion, cuDNN
        # converts instead.
        products = conv.batch * conv.in_channels * conv.out_channels * 4
        if products <= _max_product_ratio(conv) * (conv.input_bytes() + conv.output_bytes()):
            return products
    if _reads_images_directly(conv) and conv.element_size == _SINGLE and conv.dims == 2:  # noqa: PLR2004
        return 0
    converted = _converted_bytes(conv, _input_alignment(conv, gradient=True), conv.align)
    return converted + _padded_gradient(conv) + _partial_sums(conv, processors)


def _padded_gradient(conv: ConvolutionShape) -> int:
    """Return the bytes of the gradient of a pointwise convolution in channels_last, with its channels padded.

    Seen in YOLOv5's head of 255 channels, in bfloat16.
    """
    is_padded = conv.pointwise and conv.channels_last and conv.groups == 1 and conv.out_channels % conv.align
    return conv.output_bytes(conv.align) if is_padded and conv.element_size == _HALF else 0


def _max_product_ratio(conv: ConvolutionShape) -> float:
    """Return how much larger than a conversion the products of all samples may be.

    In half precision, layers that expand two to three tiles of channels of unaligned images are multiplied sample by
    sample at any size. Eleven shapes in networks were measured; why cuDNN prefers these is not known.
    """
    expands = 2 * _TILE <= conv.in_channels <= 3 * _TILE and conv.out_channels >= 2 * conv.in_channels
    if conv.element_size == _HALF and conv.in_pixels % 4 and expands:
        return math.inf
    return _MAX_PRODUCT_RATIO.get(conv.element_size, 1)


def _reads_images_directly(conv: ConvolutionShape) -> bool:
    """Return True for few channels and taps, as in a first layer: cuDNN reads such images unconverted."""
    products = conv.in_channels * conv.taps
    return (
        conv.groups == 1
        and conv.in_channels <= _MAX_IMAGE_CHANNELS
        and products <= _MAX_DIRECT_PRODUCTS.get(conv.element_size, 0)
    )


def _writes_output_directly(conv: ConvolutionShape) -> bool:
    """Return True if outputs need no conversion: in fp32, from at most half a tile of channels to more than that."""
    grows = _MAX_IMAGE_CHANNELS < conv.in_channels <= _TILE // 2 < conv.out_channels
    return grows and conv.element_size == _SINGLE and conv.groups == 1 and not conv.channels_last


def _is_resnet_stem(conv: ConvolutionShape) -> bool:
    """Return True for the first layer of ResNets in fp16, for which cuDNN has kernels that read four channels."""
    halved = conv.dims == 2 and conv.in_pixels == 4 * conv.out_pixels  # noqa: PLR2004
    fp16 = conv.element_size == _HALF and not conv.bfloat16
    return conv.in_channels <= _MAX_IMAGE_CHANNELS and conv.taps == 7 * 7 and halved and fp16


def _input_alignment(conv: ConvolutionShape, *, gradient: bool = False) -> int:
    """Return the multiple that input channels are padded to."""
    if _is_resnet_stem(conv):
        return _MAX_IMAGE_CHANNELS
    return conv.align if conv.bfloat16 or gradient else 1


def _is_matrix_product(conv: ConvolutionShape, *, gradient: bool = False) -> bool:
    """Return True for a pointwise convolution without channels_last that runs as one matrix product per image.

    cuDNN converts where products are large and images are not aligned or the pass is a gradient, except for float16,
    which has the most kernels. It also converts many tiny unaligned images in half precision's forward pass.
    """
    if not conv.pointwise or conv.groups > 1 or conv.channels_last:
        return False
    aligned = conv.in_pixels % 4 == 0
    float16 = conv.element_size == _HALF and not conv.bfloat16
    if conv.in_channels * conv.out_channels >= _LARGE_PRODUCT and not (aligned and (float16 or not gradient)):
        return False
    tiny = conv.element_size == _HALF and conv.in_pixels < 2 * conv.batch
    return aligned or gradient or not tiny


def _underfills_gpu(conv: ConvolutionShape) -> bool:
    """Return True if there are so few channels for the pixels that one product per sample would not fill the GPU."""
    sums, pixels = conv.batch * conv.in_channels * conv.out_channels, conv.batch * conv.in_pixels
    return conv.dims == 2 and conv.element_size == _SINGLE and sums <= _BUSY_THREADS <= pixels  # noqa: PLR2004


def _depthwise_partial_sums(conv: ConvolutionShape) -> int:
    """Return the bytes of partial sums: cuDNN splits a sample in channels_last if images are small and taps many."""
    small = conv.in_pixels <= _SMALL_IMAGE_PIXELS.get(conv.taps, 0)
    if conv.channels_last and conv.element_size == _HALF and small:
        return conv.batch * conv.in_channels * conv.taps * 4 * _DEPTHWISE_PARTIAL_SUMS
    return 0


def _converted_bytes(conv: ConvolutionShape, in_align: int, out_align: int) -> int:
    """Return the bytes of converted tensors: all of them without channels_last, else only unaligned ones.

    Args:
        conv: the convolution.
        in_align: the multiple that input channels are padded to.
        out_align: the multiple that output channels are padded to.
    """
    if conv.groups > 1:
        return _converted_group_bytes(conv)
    padded = _pad(conv.in_channels, in_align), _pad(conv.out_channels, out_align)
    weight = conv.weight_bytes_for(*padded) if conv.taps > 1 else 0
    if not conv.channels_last:
        return conv.input_bytes(in_align) + conv.output_bytes(out_align) + weight
    if conv.pointwise:
        return 0
    unaligned_input = conv.input_bytes(in_align) if conv.in_channels % in_align else 0
    unaligned_output = conv.output_bytes(out_align) if conv.out_channels % out_align else 0
    unaligned = unaligned_input + unaligned_output
    return unaligned + weight if unaligned else 0


def _converted_group_bytes(conv: ConvolutionShape) -> int:
    """Return the bytes of converted tensors with groups, whose channels are padded to a power of two."""
    if conv.channels_last:
        return 0
    ins, outs = conv.in_channels // conv.groups, conv.out_channels // conv.groups
    padded_ins, padded_outs = _ceil_power(ins), _ceil_power(outs)
    return (
        conv.input_bytes() * padded_ins // ins
        + conv.output_bytes() * padded_outs // outs
        + conv.weight_bytes * padded_ins * padded_outs // (ins * outs) * (conv.taps > 1)
    )


def _partial_sums(conv: ConvolutionShape, processors: int) -> int:
    """Return the bytes of the weight gradient's partial sums: pixels are divided until the GPU is full."""
    ins = _pad(conv.in_channels // conv.groups, conv.align)
    rows, columns = (_TILE if channels > _TILE // 2 else _TILE // 2 for channels in (conv.out_channels, ins))
    across = math.ceil(ins / columns) * conv.taps if ins >= columns else math.ceil(ins * conv.taps / columns)
    tiles = math.ceil(conv.out_channels / rows) * across
    full_tiles = rows == columns == _TILE and not (conv.pointwise and conv.channels_last)
    min_pixels = _MIN_PIXELS_PER_FAST_SUM if conv.element_size == _HALF and full_tiles else _MIN_PIXELS_PER_SUM
    sums = min(conv.batch * conv.out_pixels // min_pixels, processors // tiles)
    if sums < _MIN_PARTIAL_SUMS:
        return 0
    return sums * (conv.out_channels * ins * 4 if conv.taps == 1 else tiles * rows * columns * 4)


def _pad(channels: int, align: int) -> int:
    return math.ceil(channels / align) * align


def _ceil_power(channels: int) -> int:
    return 1 << (channels - 1).bit_length()
