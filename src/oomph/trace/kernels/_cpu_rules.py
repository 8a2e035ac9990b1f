"""Memory that CPU kernels allocate within one operation.

oneDNN computes convolutions in a blocked layout: inputs are copied into it and outputs are copied back, except for
channels_last tensors, which it uses directly (observed by recording malloc: torch 2.13, oneDNN 3.12, AVX-512).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ._rules import AllocateResult, AllocateTemporary, FreeTemporaries, RuleStep, layout_of, nbytes

CpuRule = Callable[[tuple[Any, ...], tuple[Any, ...]], Iterator[RuleStep]]

_MIN_BLOCKED_CHANNELS = 4  # images have fewer and are read without a copy


def _is_plain(tensor: Tensor) -> bool:
    return layout_of(tensor) is torch.contiguous_format


def _blocked_bytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's blocked copy."""
    return nbytes(tensor) if tensor.shape[1] >= _MIN_BLOCKED_CHANNELS else 0


def _needs_copies(x: Tensor, weight: Tensor) -> bool:
    return _is_plain(x) and _is_plain(weight) and x.dtype != torch.float64


def _copies(*sizes: int) -> Iterator[RuleStep]:
    for size in sizes:
        yield AllocateTemporary(max(size, 1), hold=True, workspace=False)


def _conv(args: tuple[Any, ...], outs: tuple[Any, ...]) -> Iterator[RuleStep]:
    x, weight = args[0], args[1]
    if not _needs_copies(x, weight):
        yield AllocateResult(0)
        return
    yield from _copies(_blocked_bytes(x), nbytes(weight), nbytes(outs[0]))
    yield FreeTemporaries(2)
    yield AllocateResult(0)


def _conv_backward(args: tuple[Any, ...], outs: tuple[Any, ...]) -> Iterator[RuleStep]:
    grad, x, weight = args[:3]
    copied = _needs_copies(x, weight)
    if outs[0] is not None:
        yield from _copies(nbytes(grad), nbytes(weight), nbytes(x)) if copied else ()
        yield FreeTemporaries(2)
        yield AllocateResult(0)
        yield FreeTemporaries(1)
    if outs[1] is not None:
        yield from _copies(nbytes(grad), _blocked_bytes(x)) if copied else ()
        yield AllocateResult(1)
        yield FreeTemporaries(2)
    if outs[2] is not None:
        yield AllocateResult(2)


CPU_RULES: dict[str, CpuRule] = {
    "aten.convolution.default": _conv,
    "aten.convolution_backward.default": _conv_backward,
}
