"""Memory that CUDA kernels allocate within one operation, and the layout of their results.

An operation without a rule allocates its results and nothing else, which is true of most operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .._device import CudaDevice
from . import _ampere_convolutions as ampere
from ._convolution_workspaces import (
    ConvolutionShape,
    forward_workspace,
    input_gradient_workspace,
    weight_gradient_workspace,
)
from ._reduction import ReductionShape, scratch_sizes
from ._rules import AllocateResult, AllocateTemporary, RuleStep, contiguous_copy, held_copy, layout_of, nbytes

CudaRule = Callable[[tuple[Any, ...], tuple[Any, ...], CudaDevice], Iterator[RuleStep]]

_ATTENTION_BLOCK_TOKENS = 64  # computed at once by the efficient kernel
_VARIANCE_BYTES = 16  # mean, sum of squares and two counts
_LAYER_NORM_ROWS = 64 * 1024  # above, the gradients of weight and bias are summed in blocks of rows
_LAYER_NORM_BLOCK = 32
_MAX_UNSORTED_INDICES = 3072  # fewer gradients of an embedding are summed without sorting


def _convolution(x: Tensor, weight: Tensor, out: Tensor, args: tuple[Any, ...]) -> ConvolutionShape:
    """Return the shape of a convolution; a transposed convolution is the gradient of a plain one."""
    stride, padding, _, transposed, _, groups = args
    if transposed:
        x, out = out, x
    return ConvolutionShape(
        batch=x.shape[0],
        in_channels=x.shape[1],
        out_channels=out.shape[1],
        in_pixels=math.prod(x.shape[2:]),
        out_pixels=math.prod(out.shape[2:]),
        taps=math.prod(weight.shape[2:]),
        pointwise=math.prod(weight.shape[2:]) == 1 and set(stride) == {1} and set(padding) == {0},
        groups=groups,
        element_size=x.element_size(),
        channels_last=layout_of(x) is not torch.contiguous_format or layout_of(weight) is not torch.contiguous_format,
        dims=x.dim() - 2,
        bfloat16=x.dtype is torch.bfloat16,
    )


def _forward_size(conv: ConvolutionShape, device: CudaDevice) -> int:
    return ampere.forward_workspace(conv) if _follows_ampere(conv, device) else forward_workspace(conv)


def _input_gradient_size(conv: ConvolutionShape, device: CudaDevice) -> int:
    return 0 if _follows_ampere(conv, device) else input_gradient_workspace(conv)


def _weight_gradient_size(conv: ConvolutionShape, device: CudaDevice) -> int:
    return 0 if _follows_ampere(conv, device) else weight_gradient_workspace(conv, device.processors)


def _follows_ampere(conv: ConvolutionShape, device: CudaDevice) -> bool:
    return device.is_ampere_or_ada and conv.element_size == 4  # noqa: PLR2004  fp32


def _conv(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    x, weight, _, *options = args
    conv = _convolution(x, weight, outs[0], tuple(options[:6]))
    layout = layout_of(outs[0])
    yield from contiguous_copy(x, layout)
    yield from contiguous_copy(weight, layout)
    yield AllocateResult(0)
    transposed = options[3]
    size = (_input_gradient_size if transposed else _forward_size)(conv, device)
    yield AllocateTemporary(size, optional=True)


def _conv_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    grad, x, weight, _, *options = args
    conv = _convolution(x, weight, grad, tuple(options[:6]))
    layout = torch.contiguous_format if not conv.channels_last else _channels_last(x)
    yield from contiguous_copy(grad, layout)
    yield from contiguous_copy(x, layout)
    yield from contiguous_copy(weight, layout)
    transposed = options[3]
    if outs[0] is not None:
        yield AllocateResult(0)
        size = (_forward_size if transposed else _input_gradient_size)(conv, device)
        yield AllocateTemporary(size, optional=True)
    if outs[1] is not None:
        yield AllocateResult(1)
        yield AllocateTemporary(_weight_gradient_size(conv, device), optional=True)
    if outs[2] is not None:
        yield AllocateResult(2)
        yield from _reduction_scratch(grad, (0, *range(2, grad.dim())), device)


def _channels_last(tensor: Tensor) -> torch.memory_format:
    return torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d  # noqa: PLR2004


def _reduction(position: int, accumulator: int = 4) -> CudaRule:
    """Return the rule of a reduction.

    Args:
        position: index of the reduced dimensions among the arguments.
        accumulator: bytes of a partial result, for results in at most fp32.
    """

    def rule(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
        yield from _all_results(outs)
        dims = args[position] if len(args) > position else None
        dims = [dims] if isinstance(dims, int) else dims or range(args[0].dim())
        yield from _reduction_scratch(args[0], tuple(dims), device, accumulator)

    return rule


def _reduction_scratch(
    x: Tensor, dims: tuple[int, ...], device: CudaDevice, accumulator: int = 4
) -> Iterator[RuleStep]:
    """Yield the scratch memory of a reduction, with dimensions merged as TensorIterator merges them."""
    reduced = {dim % x.dim() for dim in dims} if x.dim() else set()
    sizes = [(x.stride(dim), x.shape[dim], dim in reduced) for dim in range(x.dim()) if x.shape[dim] > 1]
    inputs = math.prod(size for _, size, is_reduced in sizes if is_reduced)
    outputs = math.prod(size for _, size, is_reduced in sizes if not is_reduced)
    if inputs <= 1:
        return
    fastest = min(sizes)
    vector = 4
    while fastest[0] == 1 and fastest[1] % vector:
        vector //= 2
    for stride, _, _ in sorted(sizes)[1:]:
        while stride % vector:
            vector //= 2
    reduction = ReductionShape(
        outputs=outputs,
        inputs=inputs,
        along_fastest=fastest[2],
        vector=vector if fastest[0] == 1 else 1,
        single=outputs == 1,
        accumulator=max(accumulator, x.element_size()),
    )
    for size in scratch_sizes(reduction, device):
        yield AllocateTemporary(size, hold=True)


def _all_results(outs: tuple[Any, ...]) -> Iterator[RuleStep]:
    yield from (AllocateResult(index) for index, out in enumerate(outs) if out is not None)


def _needs_contiguous(*positions: int) -> CudaRule:
    """Return the rule of a kernel that needs the arguments at these positions contiguous."""

    def rule(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
        del device
        for position in positions:
            if position < len(args) and isinstance(args[position], Tensor):
                yield from contiguous_copy(args[position])
        yield from _all_results(outs)

    return rule


def _layer_norm(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """Mean and standard deviation are in fp32."""
    del device
    yield from contiguous_copy(args[0])
    yield AllocateResult(0)
    yield from (AllocateResult(index, 4 * outs[index].numel()) for index in (1, 2))


def _layer_norm_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """The gradients of weight and bias of many short rows are summed in two steps."""
    yield from contiguous_copy(args[0])
    yield from contiguous_copy(args[1])
    yield from _all_results(outs)
    width = math.prod(args[2])
    rows = args[1].numel() // width
    if outs[1] is None or rows <= _LAYER_NORM_ROWS or width // _LAYER_NORM_BLOCK >= device.processors // 2:
        return
    sums = -(-rows // _LAYER_NORM_BLOCK)
    yield AllocateTemporary(2 * sums * width * outs[1].element_size(), hold=True)
    vector = next(size for size in (4, 2, 1) if width % size == 0)
    for size in scratch_sizes(ReductionShape(outputs=width, inputs=sums, along_fastest=False, vector=vector), device):
        yield AllocateTemporary(size, hold=True)


def _softmax_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """The product of gradient and output is a temporary tensor."""
    del outs, device
    yield held_copy(args[0])
    yield AllocateResult(0)


def _safe_softmax(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """A mask of the elements that are -inf is a temporary tensor; rows of -inf become zeros."""
    del outs, device
    yield AllocateResult(0)
    yield AllocateTemporary(args[0].numel(), hold=True, workspace=False)


def _huber_loss(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """The elementwise loss is a temporary tensor if it is reduced."""
    del device
    if outs[0].dim() == 0:
        yield held_copy(args[0])
    yield AllocateResult(0)


def _dropout(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """The mask is allocated before the result."""
    del args, outs, device
    yield AllocateResult(1)
    yield AllocateResult(0)


def _squared_loss(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """The storage of a reduced result has the size of the elementwise loss."""
    del device
    yield AllocateResult(0, nbytes(args[0]))
    if outs[0].dim() == 0:
        yield held_copy(args[0])


def _binary_cross_entropy(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """The mean overwrites the elementwise loss in its storage."""
    del outs, device
    yield AllocateResult(0, nbytes(args[0]))


def _bce_with_logits(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """The log-sigmoid and the elementwise loss are temporary tensors."""
    del outs, device
    yield held_copy(args[0])
    yield held_copy(args[0])
    yield AllocateResult(0)


def _roll(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """Dimensions are rolled one after the other, through a temporary tensor."""
    del outs, device
    if len(args[1]) > 1:
        yield held_copy(args[0])
    yield AllocateResult(0)


def _resize_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """The gradient is copied into the layout of the result, after the result was allocated."""
    del device
    yield AllocateResult(0)
    yield from contiguous_copy(args[0], layout_of(outs[0]))


def _attention_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """cuDNN and flash accumulate the gradient of the queries in fp32, plus one number per row.

    Where heads share keys and values, the gradients of those are computed for every head first.
    """  # noqa: D403  the name is cuDNN
    del device
    yield from _all_results(outs)
    q, k = args[1], args[2]
    shared = 2 * nbytes(q) if k.shape[1] < q.shape[1] else 0
    yield AllocateTemporary(q.numel() * 4 + q.numel() // q.shape[-1] * 4 + shared)


def _efficient_attention_backward(
    args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice
) -> Iterator[RuleStep]:
    """Gradient times output is summed per row; the gradient of the queries is accumulated in blocks of tokens."""
    del device
    yield from _all_results(outs)
    q = args[1]
    yield AllocateTemporary(q.numel() * 4, workspace=False)
    yield AllocateTemporary(q.numel() // q.shape[-1] * 4, hold=True)
    tokens = q.shape[-2]
    sums = q.numel() // tokens * math.ceil(tokens / _ATTENTION_BLOCK_TOKENS) * _ATTENTION_BLOCK_TOKENS * 4
    yield AllocateTemporary(sums + sums // 1024)  # with a lock for each block


def _embedding_backward(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """Indices are sorted, and rows of equal index are summed in segments; in the worst case few indices are equal."""
    del outs, device
    grad, indices, rows = args[0], args[1], args[2]
    yield from contiguous_copy(grad)
    yield AllocateResult(0)
    count, size = indices.numel(), indices.element_size()
    if count <= _MAX_UNSORTED_INDICES:
        return
    yield AllocateTemporary(5 * count * size)  # the sort
    segments = min(count, rows)
    partial = segments + count // 10
    yield AllocateTemporary((2 * count + 3 * segments + partial) * size, hold=True)
    yield AllocateTemporary(partial * grad.shape[-1] * 4, hold=True)


def _log_sigmoid(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
    """CUDA needs no buffer for the backward pass."""
    del args, outs, device
    yield AllocateResult(0)


def _batch_norm(divisor: float, position: int) -> CudaRule:
    """Return the rule of BatchNorm: in channels_last, except for bfloat16, it runs in cuDNN with a workspace.

    Args:
        divisor: elements of the input, with channels padded to 64, per byte of workspace.
        position: index of the input among the arguments.
    """

    def rule(args: tuple[Any, ...], outs: tuple[Any, ...], device: CudaDevice) -> Iterator[RuleStep]:
        del device
        x = args[position]
        in_cudnn = x.dim() > 2 and x.dtype is not torch.bfloat16  # noqa: PLR2004
        if in_cudnn:
            yield from contiguous_copy(args[0], layout_of(x))
        yield from _all_results(outs)
        if in_cudnn and layout_of(x) is not torch.contiguous_format:
            channels = x.shape[1]
            yield AllocateTemporary(int(x.numel() // channels * math.ceil(channels / 64) * 64 / divisor))

    return rule


CUDA_RULES: dict[str, CudaRule] = {
    "aten.convolution.default": _conv,
    "aten.convolution_backward.default": _conv_backward,
    "aten.sum.dim_IntList": _reduction(1),
    "aten.sum.default": _reduction(1),
    "aten.mean.dim": _reduction(1),
    "aten.mean.default": _reduction(1),
    "aten.amax.default": _reduction(1),
    "aten.amin.default": _reduction(1),
    "aten.linalg_vector_norm.default": _reduction(2),
    "aten.var.correction": _reduction(1, _VARIANCE_BYTES),
    "aten.var_mean.correction": _reduction(1, _VARIANCE_BYTES),
    "aten.std.correction": _reduction(1, _VARIANCE_BYTES),
    "aten._softmax.default": _needs_contiguous(0),
    "aten._log_softmax.default": _needs_contiguous(0),
    "aten.col2im.default": _needs_contiguous(0),
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_layer_norm_backward.default": _layer_norm_backward,
    "aten.native_group_norm.default": _needs_contiguous(0),
    "aten.native_group_norm_backward.default": _needs_contiguous(0, 1),
    "aten.upsample_nearest2d_backward.default": _resize_backward,
    "aten.upsample_bilinear2d_backward.default": _resize_backward,
    "aten.upsample_nearest3d_backward.default": _resize_backward,
    "aten.upsample_trilinear3d_backward.default": _resize_backward,
    "aten.max_pool2d_with_indices_backward.default": _resize_backward,
    "aten.max_pool3d_with_indices_backward.default": _resize_backward,
    "aten.avg_pool2d_backward.default": _resize_backward,
    "aten._softmax_backward_data.default": _softmax_backward,
    "aten._safe_softmax.default": _safe_softmax,
    "aten.native_dropout.default": _dropout,
    "aten.mse_loss.default": _squared_loss,
    "aten.smooth_l1_loss.default": _squared_loss,
    "aten.huber_loss.default": _huber_loss,
    "aten.binary_cross_entropy.default": _binary_cross_entropy,
    "aten.binary_cross_entropy_with_logits.default": _bce_with_logits,
    "aten.roll.default": _roll,
    "aten._scaled_dot_product_cudnn_attention_backward.default": _attention_backward,
    "aten._scaled_dot_product_flash_attention_backward.default": _attention_backward,
    "aten._scaled_dot_product_efficient_attention_backward.default": _efficient_attention_backward,
    "aten.embedding_dense_backward.default": _embedding_backward,
    "aten.log_sigmoid_forward.default": _log_sigmoid,
    "aten.native_batch_norm.default": _batch_norm(19.84, 0),
    "aten.native_batch_norm_backward.default": _batch_norm(12, 1),
}

# Operations that call cuBLAS, which allocates a permanent workspace on the first call in each thread.
CUBLAS_OPS = frozenset(
    f"aten.{name}.default" for name in ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "_cudnn_rnn")
)
