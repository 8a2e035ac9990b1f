"""Memory that CUDA's kernels take and give back within one operation, and how they lay out their results.

A rule is handed an operation's arguments and results and says in which order memory comes and goes: copies of
arguments that a kernel needs contiguous, results, workspaces. An operation without a rule allocates its results and
nothing else, which is true of most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._convolution import Convolution, forward_workspace, input_gradient_workspace, weight_gradient_workspace
from ._device import Device
from ._reduction import Reduction, scratch


@dataclass(frozen=True)
class Result:
    """The operation's result of that index is allocated now.

    Attributes:
        index: which result.
        size: bytes of its storage, where CUDA's kernel makes it larger than the result.
    """

    index: int
    size: int = 0


@dataclass(frozen=True)
class Temp:
    """Memory that is taken now, and given back at once or (`hold`) when the operation ends.

    Attributes:
        size: bytes.
        hold: whether it stays until the end of the operation.
        workspace: whether it is a library's workspace, and not a copy.
        optional: whether the library does without when there is no room.
    """

    size: int
    hold: bool = False
    workspace: bool = True
    optional: bool = False


@dataclass(frozen=True)
class Drop:
    """That many of the temporaries that are held are given back now, the oldest first."""

    count: int


Step = Result | Temp | Drop
Rule = Callable[[tuple[Any, ...], tuple[Any, ...], Device], Iterator[Step]]


def nbytes(tensor: Tensor) -> int:
    """Bytes of a tensor's own elements."""
    return tensor.numel() * tensor.element_size()


def copy(tensor: Tensor | None, layout: torch.memory_format = torch.contiguous_format) -> Iterator[Step]:
    """The copy that a kernel makes of an argument that isn't contiguous."""
    if tensor is not None and not tensor.is_contiguous(memory_format=layout):
        yield Temp(nbytes(tensor), hold=True, workspace=False)


def layout_of(tensor: Tensor) -> torch.memory_format:
    """The layout that a kernel will give its results: channels_last if the tensor has it."""
    for dims, layout in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dims and tensor.is_contiguous(memory_format=layout) and not tensor.is_contiguous():
            return layout
    return torch.contiguous_format


def _convolution(x: Tensor, weight: Tensor, out: Tensor, args: tuple[Any, ...]) -> Convolution:
    """Describe a convolution; a transposed one is the gradient of a plain one."""
    stride, padding, _, transposed, _, groups = args
    if transposed:
        x, out = out, x
    return Convolution(
        batch=x.shape[0],
        ins=x.shape[1],
        outs=out.shape[1],
        pixels_in=math.prod(x.shape[2:]),
        pixels_out=math.prod(out.shape[2:]),
        kernel=math.prod(weight.shape[2:]),
        pointwise=math.prod(weight.shape[2:]) == 1 and set(stride) == {1} and set(padding) == {0},
        groups=groups,
        element=x.element_size(),
        channels_last=layout_of(x) is not torch.contiguous_format or layout_of(weight) is not torch.contiguous_format,
        dims=x.dim() - 2,
        bfloat16=x.dtype is torch.bfloat16,
    )


def _conv(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    del device
    x, weight, _, *rest = args
    conv = _convolution(x, weight, outs[0], tuple(rest[:6]))
    layout = layout_of(outs[0])
    yield from copy(x, layout)
    yield from copy(weight, layout)
    yield Result(0)
    size = (input_gradient_workspace if rest[3] else forward_workspace)(conv)
    yield Temp(size, optional=True)


def _conv_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    grad, x, weight, _, *rest = args
    conv = _convolution(x, weight, grad, tuple(rest[:6]))
    layout = torch.contiguous_format if not conv.channels_last else _channels_last(x)
    yield from copy(grad, layout)
    yield from copy(x, layout)
    yield from copy(weight, layout)
    if outs[0] is not None:
        yield Result(0)
        yield Temp((forward_workspace if rest[3] else input_gradient_workspace)(conv), optional=True)
    if outs[1] is not None:
        yield Result(1)
        yield Temp(weight_gradient_workspace(conv, device.processors), optional=True)
    if outs[2] is not None:
        yield Result(2)
        yield from _partial_sums(grad, (0, *range(2, grad.dim())), device)


def _channels_last(tensor: Tensor) -> torch.memory_format:
    return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d  # noqa: PLR2004


def _sum(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    del outs
    yield Result(0)
    dims = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) and args[1] else range(args[0].dim())
    yield from _partial_sums(args[0], tuple(dims), device)


def _partial_sums(x: Tensor, dims: tuple[int, ...], device: Device) -> Iterator[Step]:
    """The scratch memory of a reduction; dimensions are merged as TensorIterator would merge them."""
    reduced = {dim % x.dim() for dim in dims} if x.dim() else set()
    sizes = [(x.stride(dim), x.shape[dim], dim in reduced) for dim in range(x.dim()) if x.shape[dim] > 1]
    inputs = math.prod(size for _, size, inside in sizes if inside)
    outputs = math.prod(size for _, size, inside in sizes if not inside)
    if inputs <= 1:
        return
    fastest = min(sizes)
    vector = 4
    while fastest[0] == 1 and fastest[1] % vector:
        vector //= 2
    for stride, _, _ in sorted(sizes)[1:]:
        while stride % vector:
            vector //= 2
    reduction = Reduction(
        outputs=outputs,
        inputs=inputs,
        along_fastest=fastest[2],
        vector=vector if fastest[0] == 1 else 1,
        single=outputs == 1,
        accumulator=max(4, x.element_size()),
    )
    for size in scratch(reduction, device):
        yield Temp(size, hold=True)


def _copies_first(*places: int) -> Rule:
    """A kernel that needs some of its arguments contiguous."""

    def rule(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
        del device
        for place in places:
            if place < len(args) and isinstance(args[place], Tensor):
                yield from copy(args[place])
        yield from (Result(index) for index, out in enumerate(outs) if out is not None)

    return rule


def _softmax_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """The product of gradient and output is a tensor of its own."""
    del outs, device
    yield Temp(nbytes(args[0]), hold=True, workspace=False)
    yield Result(0)


def _huber_loss(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """An elementwise loss that is then averaged."""
    del device
    if outs[0].dim() == 0:
        yield Temp(nbytes(args[0]), hold=True, workspace=False)
    yield Result(0)


def _dropout(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """The mask is made first."""
    del args, outs, device
    yield Result(1)
    yield Result(0)


def _squared_loss(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """The result is made as large as the elementwise loss before it is known to be one number, and stays so."""
    del device
    size = nbytes(args[0])
    yield Result(0, size)
    if outs[0].dim() == 0:
        yield Temp(size, hold=True, workspace=False)


def _cross_entropy(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """The elementwise loss is overwritten with its mean."""
    del outs, device
    yield Result(0, nbytes(args[0]))


def _bce_with_logits(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """The log-sigmoid and the elementwise loss."""
    del outs, device
    yield Temp(nbytes(args[0]), hold=True, workspace=False)
    yield Temp(nbytes(args[0]), hold=True, workspace=False)
    yield Result(0)


def _roll(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """Each dimension is rolled in turn, through a tensor of its own."""
    del outs, device
    if len(args[1]) > 1:
        yield Temp(nbytes(args[0]), hold=True, workspace=False)
    yield Result(0)


def _resized_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """The gradient is needed in the layout of the result, which is there by then."""
    del device
    yield Result(0)
    yield from copy(args[0], layout_of(outs[0]))


def _attention_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """CuDNN and flash sum up the gradient of the queries in fp32, with one number a row beside it.

    Where heads share keys and values, the gradients of these are made for every head first.
    """
    del device
    yield from (Result(index) for index, out in enumerate(outs) if out is not None)
    q, k = args[1], args[2]
    shared = 2 * nbytes(q) if k.shape[1] < q.shape[1] else 0
    yield Temp(q.numel() * 4 + q.numel() // q.shape[-1] * 4 + shared)


def _efficient_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """Gradient times output is summed up a row; the gradient of the queries is summed up in blocks of tokens."""
    del device
    yield from (Result(index) for index, out in enumerate(outs) if out is not None)
    q = args[1]
    yield Temp(q.numel() * 4, workspace=False)
    yield Temp(q.numel() // q.shape[-1] * 4, hold=True)
    tokens = q.shape[-2]
    sums = q.numel() // tokens * math.ceil(tokens / _ATTENTION_BLOCK) * _ATTENTION_BLOCK * 4
    yield Temp(sums + sums // 1024)  # with a lock for each block


_ATTENTION_BLOCK = 64  # tokens that are computed at once


def _embedding_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """Indices are sorted, and rows of the same index summed up in segments; at worst every index is another."""
    del outs, device
    grad, indices = args[0], args[1]
    yield from copy(grad)
    yield Result(0)
    count = indices.numel()
    if count <= 3072:  # noqa: PLR2004  fewer are summed up without sorting
        return
    segments = count + count // 10
    yield Temp(5 * count * indices.element_size(), hold=True)
    yield Temp(segments * grad.shape[-1] * 4, hold=True)


def _log_sigmoid(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
    """CUDA needs no buffer for the backward pass."""
    del args, outs, device
    yield Result(0)


def _batch_norm(share: float, place: int) -> Rule:
    """In channels_last cuDNN takes over, but for bfloat16, and needs room for a share of the input's elements."""

    def rule(args: tuple[Any, ...], outs: tuple[Any, ...], device: Device) -> Iterator[Step]:
        del device
        x = args[place]
        yield from (Result(index) for index, out in enumerate(outs) if out is not None)
        if layout_of(x) is not torch.contiguous_format and x.dtype is not torch.bfloat16:
            channels = x.shape[1]
            yield Temp(int(x.numel() // channels * math.ceil(channels / 64) * 64 / share))

    return rule


RULES: dict[str, Rule] = {
    "aten.convolution.default": _conv,
    "aten.convolution_backward.default": _conv_backward,
    "aten.sum.dim_IntList": _sum,
    "aten.sum.default": _sum,
    "aten.mean.dim": _sum,
    "aten.mean.default": _sum,
    "aten.native_layer_norm.default": _copies_first(0),
    "aten.native_layer_norm_backward.default": _copies_first(0, 1),
    "aten.native_group_norm.default": _copies_first(0),
    "aten.native_group_norm_backward.default": _copies_first(0, 1),
    "aten.upsample_nearest2d_backward.default": _resized_backward,
    "aten.upsample_bilinear2d_backward.default": _resized_backward,
    "aten.upsample_nearest3d_backward.default": _resized_backward,
    "aten.upsample_trilinear3d_backward.default": _resized_backward,
    "aten.max_pool2d_with_indices_backward.default": _resized_backward,
    "aten.max_pool3d_with_indices_backward.default": _resized_backward,
    "aten.avg_pool2d_backward.default": _resized_backward,
    "aten._softmax_backward_data.default": _softmax_backward,
    "aten.native_dropout.default": _dropout,
    "aten.mse_loss.default": _squared_loss,
    "aten.smooth_l1_loss.default": _squared_loss,
    "aten.huber_loss.default": _huber_loss,
    "aten.binary_cross_entropy.default": _cross_entropy,
    "aten.binary_cross_entropy_with_logits.default": _bce_with_logits,
    "aten.roll.default": _roll,
    "aten._scaled_dot_product_cudnn_attention_backward.default": _attention_backward,
    "aten._scaled_dot_product_flash_attention_backward.default": _attention_backward,
    "aten._scaled_dot_product_efficient_attention_backward.default": _efficient_backward,
    "aten.embedding_dense_backward.default": _embedding_backward,
    "aten.log_sigmoid_forward.default": _log_sigmoid,
    "aten.native_batch_norm.default": _batch_norm(19.84, 0),
    "aten.native_batch_norm_backward.default": _batch_norm(12, 1),
}

# Operations that end in cuBLAS, whose workspace is made at the first of them in each thread and stays.
BLAS = frozenset(
    f"aten.{name}.default" for name in ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "_cudnn_rnn")
)
