"""Recurrent layers as cuDNN runs them: all steps and layers in one call, with a reserve kept for the backward pass.

Reserve and workspace were derived from 72 shapes on Hopper with cuDNN 9.19. The reserve is exact for all of them. The
workspace is exact for all but 17, where cuDNN chooses another algorithm: few units, or a single unidirectional layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...units import MIB
from .._trace import RECURRENT_ESTIMATE

# Elements that the backward pass needs per layer, direction, token and unit.
_RESERVE = {"lstm": 5, "gru": 6, "rnn_tanh": 1, "rnn_relu": 1}
_BUFFER_BYTES = 8 * MIB  # per layer and direction
_FEW_UNITS = 256


class _WorkspaceTerms(NamedTuple):
    """Elements of a workspace.

    Attributes:
        per_unit: elements per token, unit and direction.
        input_copies: copies of the input.
        per_state: elements per sample and unit at the ends of each layer and direction.
    """

    per_unit: int
    input_copies: int
    per_state: int


_UNIDIRECTIONAL = {
    "lstm": _WorkspaceTerms(6, 1, 10),
    "gru": _WorkspaceTerms(5, 1, 5),
    "rnn_tanh": _WorkspaceTerms(3, 2, 17),
    "rnn_relu": _WorkspaceTerms(3, 2, 17),
}
_BIDIRECTIONAL = {
    "lstm": _WorkspaceTerms(6, 1, 12),
    "gru": _WorkspaceTerms(5, 1, 7),
    "rnn_tanh": _WorkspaceTerms(5, 1, 7),
    "rnn_relu": _WorkspaceTerms(5, 1, 7),
}


@dataclass(frozen=True)
class RecurrentShape:
    """The shape of a recurrent layer's call.

    Attributes:
        kind: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        batch: number of sequences.
        length: tokens per sequence.
        input_size: elements per token of the input.
        hidden_size: units.
        layers: stacked layers.
        directions: 1 or 2.
        element_size: bytes per element.
        dropout: dropout probability between layers.
        weights: elements of all weights.
    """

    kind: str
    batch: int
    length: int
    input_size: int
    hidden_size: int
    layers: int
    directions: int
    element_size: int
    dropout: float
    weights: int

    @property
    def _units(self) -> int:
        return self.batch * self.length * self.hidden_size

    @property
    def reserve(self) -> int:
        """Bytes kept from the forward pass for the backward pass."""
        size = self.layers * self.directions * _RESERVE[self.kind] * self._units * self.element_size
        if self.dropout:
            between = self.directions * self._units * self.element_size + self.directions**2 * self._units // 8
            size += (self.layers - 1) * between
        return size + 256

    @property
    def workspace(self) -> int:
        """Bytes used during the call."""
        terms = (_UNIDIRECTIONAL if self.directions == 1 else _BIDIRECTIONAL)[self.kind]
        elements = terms.per_unit * self.directions * self._units
        elements += terms.input_copies * self.batch * self.length * self.input_size
        if self.directions > 1:  # the concatenated outputs of both directions
            elements += (2 if self.kind == "lstm" or self.layers == 1 else 3) * self._units
        passes = self.layers * self.directions
        elements += self.weights + terms.per_state * passes * self.batch * self.hidden_size
        return elements * self.element_size + passes * _BUFFER_BYTES

    @property
    def is_exact(self) -> bool:
        """True if cuDNN ran all measured shapes of this kind with the modeled algorithm."""
        if self.directions > 1 and self.kind in {"lstm", "gru"}:
            return True
        return self.hidden_size > _FEW_UNITS and (self.directions > 1 or self.layers > 1)


class _CudnnRecurrent(torch.autograd.Function):
    """Allocates what cuDNN's call allocates, forward and backward."""

    @staticmethod
    def forward(ctx: Any, shape: RecurrentShape, batch_first: bool, x: Tensor, *rest: Tensor) -> Any:  # noqa: FBT001
        states = 2 if shape.kind == "lstm" else 1
        sequence = _by_step(x, batch_first=batch_first)
        out = x.new_empty(shape.length, shape.batch, shape.directions * shape.hidden_size)
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
        shape: RecurrentShape = ctx.shape
        # Two calls, for the gradients of the input and of the weights. Each copies its arguments.
        sequence = _by_step(x, batch_first=ctx.batch_first)
        grad_sequence = _by_step(grad, batch_first=ctx.batch_first)
        input_grad = sequence.new_empty(sequence.shape)
        state_grads = tuple(torch.empty_like(state) for state in rest[: ctx.states])
        _allocate_and_free(x, shape.workspace)
        del sequence, grad_sequence
        sequence = _by_step(x, batch_first=ctx.batch_first)
        weights = rest[ctx.states :]
        flat = x.new_empty(sum(weight.numel() for weight in weights))
        _allocate_and_free(x, shape.workspace)
        parts = flat.split([weight.numel() for weight in weights])
        weight_grads = tuple(part.view(weight.shape) for part, weight in zip(parts, weights, strict=True))
        del grad, reserve, sequence
        return (
            None,
            None,
            input_grad.transpose(0, 1) if ctx.batch_first else input_grad,
            *state_grads,
            *weight_grads,
        )


class _CastWeights(torch.autograd.Function):
    """Casts weights under autocast into one flat tensor, allocated anew for each call."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> Any:
        ctx.dtypes = [weight.dtype for weight in weights]
        flat = weights[0].new_empty(sum(weight.numel() for weight in weights), dtype=dtype)
        parts = flat.split([weight.numel() for weight in weights])
        return tuple(part.view(weight.shape) for part, weight in zip(parts, weights, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        cast = [grad.to(dtype) for grad, dtype in reversed(list(zip(grads, ctx.dtypes, strict=True)))]
        return None, *reversed(cast)


def _by_step(x: Tensor, *, batch_first: bool) -> Tensor:
    """Return a sequence in cuDNN's layout, step by step; a copy if the layout differs."""
    return x.transpose(0, 1).contiguous() if batch_first else x.contiguous()


def flatten_weights(module: nn.RNNBase) -> None:
    """Put all weights of a recurrent layer into one tensor, as torch does when the layer moves to a GPU."""
    weights = [weight for weight in module._flat_weights if weight is not None]
    if not weights:
        return
    flat = weights[0].detach().new_empty(sum(weight.numel() for weight in weights))
    parts = flat.split([weight.numel() for weight in weights])
    names = [name for name in module._flat_weights_names if getattr(module, name, None) is not None]
    for name, weight, part in zip(names, weights, parts, strict=True):
        module._parameters[name] = nn.Parameter(part.view(weight.shape), weight.requires_grad)
    module._init_flat_weights()


def _allocate_and_free(like: Tensor, size: int) -> None:
    like.new_empty(size, dtype=torch.uint8)


@dataclass(frozen=True)
class RecurrentConfig:
    """Options of a recurrent operation; `dropout` is 0 outside of training."""

    kind: str
    layers: int
    directions: int
    dropout: float
    batch_first: bool


def run_recurrent(
    config: RecurrentConfig, x: Tensor, states: list[Tensor], weights: list[Tensor], assumptions: list[str]
) -> tuple[Tensor, ...]:
    """Run a recurrent operation as cuDNN would; add a sentence to `assumptions` if its workspace is an estimate."""
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        weights = list(_CastWeights.apply(dtype, *weights))  # type: ignore[no-untyped-call]
        x, states = x.to(dtype), [state.to(dtype) for state in states]
    length, batch = (x.shape[1], x.shape[0]) if config.batch_first else (x.shape[0], x.shape[1])
    shape = RecurrentShape(
        kind=config.kind,
        batch=batch,
        length=length,
        input_size=x.shape[-1],
        hidden_size=states[0].shape[-1],
        layers=config.layers,
        directions=config.directions,
        element_size=x.element_size(),
        dropout=config.dropout,
        weights=sum(weight.numel() for weight in weights if weight.dim() > 1),
    )
    if not shape.is_exact:
        assumptions.append(RECURRENT_ESTIMATE)
    return tuple(_CudnnRecurrent.apply(shape, config.batch_first, x, *states, *weights))  # type: ignore[no-untyped-call]
