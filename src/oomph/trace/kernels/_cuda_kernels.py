"""Replacements, during a trace, of operations that run differently on CUDA than on the CPU.

They are registered on the CPU's autograd key, so calls from Python and from C++ both reach them.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from .._device import CudaDevice
from ._attention import AttentionCall, run_attention
from ._recurrent import RecurrentConfig, run_recurrent
from ._rules import layout_of

_KEYS = ("AutogradCPU", "CPU")
_BATCHED = 3  # dimensions of a tensor with one matrix per group
_ROW_ALIGNMENT = 16  # bytes


class CudaKernels:
    """Context in which dropout, linear layers, BatchNorm, attention and recurrent layers follow CUDA's kernels.

    Args:
        device: the GPU to follow.
        assumptions: receives a sentence for each assumption that had to be made.
    """

    def __init__(self, device: CudaDevice, assumptions: list[str]) -> None:
        self.device, self.assumptions = device, assumptions
        self._library: torch.library.Library | None = None
        self._dropout_state: Tensor | None = None

    def __enter__(self) -> CudaKernels:  # noqa: PYI034  Self is not in Python 3.10
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about replaced kernels
            for key in _KEYS:
                for name, kernel in self._kernels():
                    self._library.impl(name, _for_fake_tensors(name, kernel), key)
            if hasattr(torch.ops.aten, "_grouped_mm"):
                _replace_meta(self._library, "_grouped_mm", _grouped_product)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._library is not None  # noqa: S101  set on entry
        self._library._destroy()

    def _kernels(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        yield from (("dropout", _dropout), ("linear", _linear), ("batch_norm", _batch_norm))
        yield "scaled_dot_product_attention", self._attention
        for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
            yield f"{kind}.input", functools.partial(self._recurrent, kind)

    def _attention(  # noqa: PLR0913
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,  # noqa: FBT001, FBT002
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        call = AttentionCall(q, k, v, attn_mask, dropout_p, is_causal, scale, grouped=enable_gqa)
        return run_attention(call, self.device)

    def _recurrent(self, kind: str, x: Tensor, states: Any, weights: Any, *options: Any) -> tuple[Tensor, ...]:
        _, layers, dropout, train, bidirectional, batch_first = options
        config = RecurrentConfig(
            kind=kind,
            layers=layers,
            directions=2 if bidirectional else 1,
            dropout=dropout if train else 0.0,
            batch_first=batch_first,
        )
        if config.dropout and self._dropout_state is None:
            self._dropout_state = x.new_empty(self.device.dropout_state, dtype=torch.uint8)
        initial = [states] if isinstance(states, Tensor) else list(states)
        return run_recurrent(config, x, initial, list(weights), self.assumptions)


def _for_fake_tensors(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that leaves real tensors, those of the host, to torch."""
    packet, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, packet), overload or "default")
    composed = torch._C.DispatchKey.CompositeImplicitAutograd

    def run(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return kernel(x, *args, **kwargs) if isinstance(x, FakeTensor) else op._op_dk(composed, x, *args, **kwargs)

    return run


def _dropout(x: Tensor, p: float, train: bool) -> Any:  # noqa: FBT001
    """Save a boolean mask, as CUDA's fused dropout does; the CPU's saves noise in the input's dtype."""
    if not train or p == 0 or x.numel() == 0:
        return torch.ops.aten.alias(x)
    if p == 1:
        return x * torch.zeros_like(x)
    return torch.ops.aten.native_dropout(x, p, True)[0]


def _batch_norm(x: Tensor, *args: Any) -> Any:
    """Make the input dense first and save that copy, as torch does for cuDNN, which lacks BatchNorm in bfloat16."""
    if x.dim() > 2 and x.dtype is not torch.bfloat16:  # noqa: PLR2004
        x = x.contiguous(memory_format=layout_of(x))
    composed = torch._C.DispatchKey.CompositeImplicitAutograd
    return torch.ops.aten.batch_norm.default._op_dk(composed, x, *args)


def _replace_meta(library: torch.library.Library, name: str, kernel: Callable[..., Any]) -> None:
    """Replace the rule of an operation for fake tensors, in versions of torch that allow it."""
    allows = "allow_override" in inspect.signature(library.impl).parameters
    with contextlib.suppress(RuntimeError):
        library.impl(name, kernel, "Meta", **({"allow_override": True} if allows else {}))


def _grouped_product(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the result of matrix products of groups of rows; torch's rule for fake tensors rejects all but bfloat16.

    Groups are the first dimension of a tensor with three, else `offs` divides the rows or the summed dimension.
    """
    del bias
    groups = (a if a.dim() == _BATCHED else b).shape[0] if offs is None or _BATCHED in {a.dim(), b.dim()} else len(offs)
    rows, columns = a.shape[-2], b.shape[-1]
    shape = (rows, columns) if a.dim() != b.dim() else (groups, rows, columns)
    dtype = out_dtype or a.dtype
    stride = -(-columns * dtype.itemsize // _ROW_ALIGNMENT) * _ROW_ALIGNMENT // dtype.itemsize
    strides = (stride, 1) if len(shape) < _BATCHED else (rows * stride, stride, 1)
    return torch.empty_strided(shape, strides, dtype=dtype, device=a.device)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """Add the bias in place where product and bias are separate kernels; for fake tensors torch allocates the sum."""
    if bias is None or x.dim() <= 2 or x.is_contiguous():  # noqa: PLR2004
        composed = torch._C.DispatchKey.CompositeImplicitAutograd
        return torch.ops.aten.linear.default._op_dk(composed, x, weight, bias)
    return torch.matmul(x, weight.t()).add_(bias)
