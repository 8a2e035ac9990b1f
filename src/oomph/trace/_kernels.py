"""Operations that CUDA runs differently from the CPU, replaced while a trace runs.

The replacement sits on the CPU's autograd key, so that calls from Python and from C++ alike end up here.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch import Tensor

from ._attention import Backend, attend, choose
from ._device import Device
from ._recurrent import run

_KEYS = ("AutogradCPU", "CPU")


class CudaKernels:
    """Context in which dropout, linear layers, attention and recurrent layers take CUDA's kernels.

    Args:
        device: the GPU whose kernels.
        assumptions: where to note what had to be assumed.
    """

    def __init__(self, device: Device, assumptions: list[str]) -> None:
        self.device, self.assumptions = device, assumptions
        self._library: torch.library.Library | None = None
        self._random_state: Tensor | None = None

    def __enter__(self) -> CudaKernels:  # noqa: PYI034  Self is not in Python 3.10
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for key in _KEYS:
                self._library.impl("dropout", _dropout, key)
                self._library.impl("linear", _linear, key)
                self._library.impl("scaled_dot_product_attention", self._attention, key)
                for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
                    self._library.impl(f"{kind}.input", functools.partial(self._recurrent, kind), key)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._library is not None  # noqa: S101  set on entry
        self._library._destroy()

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
        if enable_gqa and choose(q, k, v, attn_mask, dropout_p, self.device) in {Backend.EFFICIENT, Backend.MATH}:
            # The other kernels take fewer key heads as they are.
            repeat = q.shape[-3] // k.shape[-3]
            k, v = k.repeat_interleave(repeat, -3), v.repeat_interleave(repeat, -3)
        return attend(q, k, v, attn_mask, dropout_p, is_causal, scale, self.device)

    def _recurrent(self, kind: str, x: Tensor, states: Any, weights: Any, *how: Any) -> tuple[Tensor, ...]:
        _, layers, dropout, train, bidirectional, batch_first = how
        if dropout and train and self._random_state is None:
            self._random_state = x.new_empty(self.device.dropout_state, dtype=torch.uint8)
        start = [states] if isinstance(states, Tensor) else list(states)
        return run(kind, x, start, list(weights), layers, dropout, train, bidirectional, batch_first, self.assumptions)


def _dropout(x: Tensor, p: float, train: bool) -> Any:  # noqa: FBT001
    """CUDA's fused dropout keeps a mask of booleans; the CPU's keeps noise in the input's own type."""
    if not train or p == 0 or x.numel() == 0:
        return torch.ops.aten.alias(x)
    if p == 1:
        return x * torch.zeros_like(x)
    return torch.ops.aten.native_dropout(x, p, True)[0]


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """Where bias and product are not one kernel, the bias is added in place; for fake tensors torch makes a new one."""
    if bias is None or x.dim() <= 2 or x.is_contiguous():  # noqa: PLR2004
        composed = torch._C.DispatchKey.CompositeImplicitAutograd
        return torch.ops.aten.linear.default._op_dk(composed, x, weight, bias)
    return torch.matmul(x, weight.t()).add_(bias)
