"""Recurrent layers as cuDNN runs them: all steps and layers in one call, with a reserve kept for the backward pass.

Reserve and workspace were read off 72 shapes on Hopper with cuDNN 9.19. The reserve is exact for all of them; the
workspace for all but 17, where cuDNN takes another algorithm: few units, or a single layer in one direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..units import MIB
from ._events import RECURRENT

# Numbers that the backward pass needs per layer, direction, token and unit.
_RESERVE = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}
_BUFFER = 8 * MIB  # for each layer and direction
_FEW_UNITS = 256


class _Steps(NamedTuple):
    """What a workspace holds.

    Attributes:
        each: numbers per token, unit and direction.
        inputs: copies of the input.
        ends: numbers per sample and unit at the ends of each layer and direction.
    """

    each: int
    inputs: int
    ends: int


_ONE_WAY = {
    "lstm": _Steps(6, 1, 10),
    "gru": _Steps(5, 1, 5),
    "rnn_tanh": _Steps(3, 2, 17),
    "rnn_relu": _Steps(3, 2, 17),
}
_BOTH_WAYS = {
    "lstm": _Steps(6, 1, 12),
    "gru": _Steps(5, 1, 7),
    "rnn_tanh": _Steps(5, 1, 7),
    "rnn_relu": _Steps(5, 1, 7),
}


@dataclass(frozen=True)
class Shape:
    """The shape of a recurrent layer's call.

    Attributes:
        kind: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        batch: sequences.
        length: their length.
        inputs: numbers of a step of the input.
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
    inputs: int
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
        steps = (_ONE_WAY if self.directions == 1 else _BOTH_WAYS)[self.kind]
        numbers = steps.each * self.directions * self._units
        numbers += steps.inputs * self.batch * self.length * self.inputs
        if self.directions > 1:  # results of both, side by side
            numbers += (2 if self.kind == "lstm" or self.layers == 1 else 3) * self._units
        each = self.layers * self.directions
        numbers += self.weights + steps.ends * each * self.batch * self.hidden
        return numbers * self.element + each * _BUFFER

    @property
    def known(self) -> bool:
        """Whether the workspace is certain: no shape of this kind took another algorithm."""
        if self.directions > 1 and self.kind in {"lstm", "gru"}:
            return True
        return self.hidden > _FEW_UNITS and (self.directions > 1 or self.layers > 1)


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
        raised = [grad.to(dtype) for grad, dtype in reversed(list(zip(grads, ctx.dtypes, strict=True)))]
        return None, *reversed(raised)


def _by_step(x: Tensor, *, batch_first: bool) -> Tensor:
    """A sequence as cuDNN takes it, one step after the other: a copy where it is laid out otherwise."""
    return x.transpose(0, 1).contiguous() if batch_first else x.contiguous()


def flatten(module: nn.RNNBase) -> None:
    """Put all weights of a layer into one tensor, as happens when it comes to a GPU."""
    weights = [weight for weight in module._flat_weights if weight is not None]
    if not weights:
        return
    flat = weights[0].detach().new_empty(sum(weight.numel() for weight in weights))
    parts = flat.split([weight.numel() for weight in weights])
    names = [name for name in module._flat_weights_names if getattr(module, name, None) is not None]
    for name, weight, part in zip(names, weights, parts, strict=True):
        module._parameters[name] = nn.Parameter(part.view(weight.shape), weight.requires_grad)
    module._init_flat_weights()


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
    assumptions: list[str],
) -> tuple[Tensor, ...]:
    """Stand in for a recurrent operation, and note what had to be assumed."""
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        weights = list(_Lowered.apply(dtype, *weights))  # type: ignore[no-untyped-call]
        x, states = x.to(dtype), [state.to(dtype) for state in states]
    shape = _shape(
        kind, x, states, weights, (layers, 2 if bidirectional else 1), dropout if train else 0.0, batch_first
    )
    if not shape.known:
        assumptions.append(RECURRENT)
    return tuple(_Recurrent.apply(shape, batch_first, x, *states, *weights))  # type: ignore[no-untyped-call]


def _shape(  # noqa: PLR0913
    kind: str,
    x: Tensor,
    states: list[Tensor],
    weights: list[Tensor],
    stack: tuple[int, int],
    dropout: float,
    batch_first: bool,  # noqa: FBT001
) -> Shape:
    length, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    return Shape(
        kind=kind,
        batch=batch,
        length=length,
        inputs=x.shape[-1],
        hidden=states[0].shape[-1],
        layers=stack[0],
        directions=stack[1],
        element=x.element_size(),
        dropout=dropout,
        weights=sum(weight.numel() for weight in weights if weight.dim() > 1),
    )
