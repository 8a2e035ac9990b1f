"""Memory that the processor's own kernels take within one operation.

oneDNN computes convolutions in a blocked layout of its own: what comes in is copied into it and what goes out is copied
back, unless it is in channels_last, which it takes as it is (watched with a recorder under malloc: torch 2.13,
oneDNN 3.12, AVX-512).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ._temporaries import Drop, Result, Step, Temp, layout_of, nbytes

HostRule = Callable[[tuple[Any, ...], tuple[Any, ...]], Iterator[Step]]

_FEW = 4  # channels of an image, which are read as they are


def _plain(tensor: Tensor) -> bool:
    return layout_of(tensor) is torch.contiguous_format


def _blocked(tensor: Tensor) -> int:
    """Bytes of the blocked copy of a tensor."""
    return nbytes(tensor) if tensor.shape[1] >= _FEW else 0


def _copied(tensor: Tensor, weight: Tensor) -> bool:
    """Whether a convolution of these goes through copies."""
    return _plain(tensor) and _plain(weight) and tensor.dtype != torch.float64


def _copies(*sizes: int) -> Iterator[Step]:
    for size in sizes:
        yield Temp(max(size, 1), hold=True, workspace=False)


def _conv(args: tuple[Any, ...], outs: tuple[Any, ...]) -> Iterator[Step]:
    x, weight = args[0], args[1]
    if not _copied(x, weight):
        yield Result(0)
        return
    yield from _copies(_blocked(x), nbytes(weight), nbytes(outs[0]))
    yield Drop(2)
    yield Result(0)


def _conv_backward(args: tuple[Any, ...], outs: tuple[Any, ...]) -> Iterator[Step]:
    grad, x, weight = args[:3]
    copied = _copied(x, weight)
    if outs[0] is not None:
        yield from _copies(nbytes(grad), nbytes(weight), nbytes(x)) if copied else ()
        yield Drop(2)
        yield Result(0)
        yield Drop(1)
    if outs[1] is not None:
        yield from _copies(nbytes(grad), _blocked(x)) if copied else ()
        yield Result(1)
        yield Drop(2)
    if outs[2] is not None:
        yield Result(2)


HOST_RULES: dict[str, HostRule] = {
    "aten.convolution.default": _conv,
    "aten.convolution_backward.default": _conv_backward,
}
