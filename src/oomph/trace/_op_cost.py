"""Floating-point operations and memory traffic of an operation, for estimating its time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ._trace import OpCost, Phase


def op_cost(op: str, args: tuple[Any, ...], outs: tuple[Any, ...], module: str, phase: Phase) -> Iterator[OpCost]:
    """Yield the cost of one operation in a module; nothing if no kernel runs, as for a view."""
    name = op.split(".")[1]
    if name in _SPARSE:
        args = args[1:]
        outs = outs if name == "gather" else ()
    tensors = [leaf for leaf in tree_leaves((args, outs)) if isinstance(leaf, Tensor)]
    if not tensors or name in _WITHOUT_KERNEL:
        return
    traffic = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    first = next((tensor for tensor in tensors if tensor.is_floating_point()), tensors[0])
    flops = _FLOPS.get(name, _elementwise)(args, outs)
    yield OpCost(name, str(first.dtype).removeprefix("torch."), flops, traffic, module, phase)


_WITHOUT_KERNEL = frozenset(
    """
    view _unsafe_view expand permute transpose t select slice unsqueeze squeeze alias detach split split_with_sizes
    unbind as_strided empty empty_like empty_strided device lift_fresh
    """.split()  # noqa: SIM905  easier to read than a list of strings
)

_SPARSE = frozenset({"gather", "scatter_add_"})  # that touch only some elements of their first argument


def _elementwise(args: tuple[Any, ...], outs: tuple[Any, ...]) -> int:
    del args
    return sum(out.numel() for out in tree_leaves(outs) if isinstance(out, Tensor))


def _mm(args: tuple[Any, ...], outs: tuple[Any, ...]) -> int:
    del outs
    left, right = [arg for arg in args if isinstance(arg, Tensor)][-2:]
    return int(2 * left.numel() * right.shape[-1])


def _conv(args: tuple[Any, ...], outs: tuple[Any, ...]) -> int:
    weight = args[1]
    positions = args[0] if args[6] else outs[0]
    return int(2 * positions.shape[0] * math.prod(positions.shape[2:]) * weight.numel())


def _conv_backward(args: tuple[Any, ...], outs: tuple[Any, ...]) -> int:
    grad, x, weight = args[:3]
    positions = x if args[7] else grad
    passes = sum(out is not None for out in outs[:2])
    return int(2 * passes * positions.shape[0] * math.prod(positions.shape[2:]) * weight.numel())


def _attention(args: tuple[Any, ...], outs: tuple[Any, ...]) -> int:
    del outs
    q, k = args[0], args[1]
    return 4 * int(q.numel()) * int(k.shape[-2])


def _attention_backward(args: tuple[Any, ...], outs: tuple[Any, ...]) -> int:
    del outs
    q, k = args[1], args[2]
    return 10 * int(q.numel()) * int(k.shape[-2])


_FLOPS = {
    "mm": _mm,
    "addmm": _mm,
    "bmm": _mm,
    "baddbmm": _mm,
    "convolution": _conv,
    "convolution_backward": _conv_backward,
    **{f"_scaled_dot_product_{kind}_attention": _attention for kind in ("cudnn", "flash", "efficient")},
    **{
        f"_scaled_dot_product_{kind}_attention_backward": _attention_backward
        for kind in ("cudnn", "flash", "efficient")
    },
}
