"""Recurrent layers as cuDNN runs them: all steps and layers in one call, with a reserve kept for the backward pass.

The reserve was read off 72 shapes on Hopper with cuDNN 9.19 and is exact there; the workspace is an estimate, since
cuDNN picks among several algorithms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..units import MIB

# Numbers that the backward pass needs per layer, direction, token and unit; numbers of workspace likewise.
_RESERVE = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}
_WORKSPACE = {"lstm": 7, "gru": 6, "rnn_tanh": 5, "rnn_relu": 5}
_EDGE = 10  # and per sample at the ends of the sequence
_FEW_UNITS = 256
_BUFFER = 8 * MIB
_PLAIN_BUFFER = 12 * MIB


@dataclass(frozen=True)
class Shape:
    """The shape of a recurrent layer's call.

    Attributes:
        kind: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        batch: sequences.
        length: their length.
        hidden: units.
        layers: stacked layers.
        directions: 1 or 2.
        element: bytes of a number.
        dropout: between layers.
        weights: numbers in all weights.
    """

    kind: str
    batch: int
    length: int
    hidden: int
    layers: int
    directions: int
    element: int
    dropout: float
    weights: int

    @property
    def _units(self) -> int:
        return self.batch * self.length * self.hidden

    @property
    def reserve(self) -> int:
        """Bytes kept from the forward pass for the backward pass."""
        kept = self.layers * self.directions * _RESERVE[self.kind] * self._units * self.element
        if self.dropout:
            between = self.directions * self._units * self.element + self.directions**2 * self._units // 8
            kept += (self.layers - 1) * between
        return kept + 256

    @property
    def workspace(self) -> int:
        """Bytes used while it runs."""
        steps = _WORKSPACE[self.kind] * self.directions * self._units * self.element
        copies = 2 if self.element == 4 else 3  # noqa: PLR2004  half precision keeps a copy in full precision too
        ends = _EDGE * self.layers * self.directions * self.batch * self.hidden * self.element
        # Few units take another algorithm, with buffers of its own for each layer; plain cells always do.
        buffers = self.layers * self.directions * _BUFFER if self.hidden <= _FEW_UNITS else 0
        buffers += _PLAIN_BUFFER if self.kind.startswith("rnn") else 0
        return steps + copies * self.weights * self.element + ends + buffers


class _Recurrent(torch.autograd.Function):
    """Allocates what cuDNN's call allocates, forward and backward."""

    @staticmethod
    def forward(ctx: Any, shape: Shape, batch_first: bool, x: Tensor, *rest: Tensor) -> Any:  # noqa: FBT001
        states = 2 if shape.kind == "lstm" else 1
        sequence = _by_step(x, batch_first=batch_first)
        out = x.new_empty(shape.length, shape.batch, shape.directions * shape.hidden)
        last = tuple(torch.empty_like(state) for state in rest[:states])
        workspace = x.new_empty(shape.workspace, dtype=torch.uint8)
        reserve = x.new_empty(shape.reserve, dtype=torch.uint8)
        del workspace
        ctx.shape, ctx.batch_first, ctx.states = shape, batch_first, states
        ctx.save_for_backward(x, out, reserve, *rest)
        del sequence
        return (out.transpose(0, 1) if batch_first else out, *last)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> Any:
        x, _, reserve, *rest = ctx.saved_tensors
        shape: Shape = ctx.shape
        # Two calls, for the gradients of the input and of the weights; each makes its own copies.
        sequence = _by_step(x, batch_first=ctx.batch_first)
        wanted = _by_step(grad, batch_first=ctx.batch_first)
        gradient = sequence.new_empty(sequence.shape)
        states = tuple(torch.empty_like(state) for state in rest[: ctx.states])
        _use(x, shape.workspace)
        del sequence, wanted
        sequence = _by_step(x, batch_first=ctx.batch_first)
        weights = rest[ctx.states :]
        flat = x.new_empty(sum(weight.numel() for weight in weights))
        _use(x, shape.workspace)
        pieces = flat.split([weight.numel() for weight in weights])
        grads = tuple(piece.view(weight.shape) for piece, weight in zip(pieces, weights, strict=True))
        del grad, reserve, sequence
        return (None, None, gradient.transpose(0, 1) if ctx.batch_first else gradient, *states, *grads)


class _Lowered(torch.autograd.Function):
    """Weights in another precision under autocast: one flat tensor, made anew for each call."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> Any:
        ctx.dtypes = [weight.dtype for weight in weights]
        flat = weights[0].new_empty(sum(weight.numel() for weight in weights), dtype=dtype)
        parts = flat.split([weight.numel() for weight in weights])
        return tuple(part.view(weight.shape) for part, weight in zip(parts, weights, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, *(grad.to(dtype) for grad, dtype in zip(grads, ctx.dtypes, strict=True))


def _by_step(x: Tensor, *, batch_first: bool) -> Tensor:
    """A sequence as cuDNN takes it, one step after the other: a copy where it is laid out otherwise."""
    return x.transpose(0, 1).contiguous() if batch_first else x.contiguous()


def flatten(module: nn.RNNBase) -> None:
    """Put all weights of a layer into one tensor, as happens when it comes to a GPU."""
    weights = [weight for weight in module._flat_weights if weight is not None]
    if not weights or any(not weight.is_contiguous() for weight in weights):
        return
    flat = weights[0].new_empty(sum(weight.numel() for weight in weights))
    begin = 0
    for weight in weights:
        weight.data = flat[begin : begin + weight.numel()].view(weight.shape)
        begin += weight.numel()


def _use(like: Tensor, size: int) -> None:
    """Take that much memory and give it back."""
    like.new_empty(size, dtype=torch.uint8)


def run(  # noqa: PLR0913  the operation that it stands for takes as many
    kind: str,
    x: Tensor,
    states: list[Tensor],
    weights: list[Tensor],
    layers: int,
    dropout: float,
    train: bool,  # noqa: FBT001
    bidirectional: bool,  # noqa: FBT001
    batch_first: bool,  # noqa: FBT001
) -> tuple[Tensor, ...]:
    """Stand in for a recurrent operation."""
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        x, states = x.to(dtype), [state.to(dtype) for state in states]
        weights = list(_Lowered.apply(dtype, *weights))  # type: ignore[no-untyped-call]
    length, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    shape = Shape(
        kind=kind,
        batch=batch,
        length=length,
        hidden=states[0].shape[-1],
        layers=layers,
        directions=2 if bidirectional else 1,
        element=x.element_size(),
        dropout=dropout if train else 0.0,
        weights=sum(weight.numel() for weight in weights if weight.dim() > 1),
    )
    return tuple(_Recurrent.apply(shape, batch_first, x, *states, *weights))  # type: ignore[no-untyped-call]
