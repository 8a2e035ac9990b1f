"""Fake quantization: layers compute with values that are rounded as in int8, so that training adapts to the rounding.

Nothing is stored in the model: ranges are those of the current values. Parameters, buffers and their names stay as they
are, so that checkpoints, averages and guards work as with the layers in float.

A weight is rounded per output channel and symmetrically, so BatchNorm needs no folding: multiplying a channel by a
number multiplies its scale by the same number, and the rounding stays the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

WEIGHT_LEVELS = 64  # on each side of zero: 7 bits, because CPUs without VNNI overflow with 8
_ACTIVATION_STEPS = 255
_MIN_SCALE = 1e-12  # of values that are all zero


class _Round(torch.autograd.Function):
    """Rounds to multiples of a scale; the gradient passes through, since rounding has none."""

    @staticmethod
    def forward(_: Any, values: Tensor, scale: Tensor) -> Tensor:
        """Return the rounded values."""
        return (values / scale).round_().mul_(scale)

    @staticmethod
    def backward(_: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient unchanged; the scale has none."""
        return gradients[0], None


def round_activations(values: Tensor) -> Tensor:
    """Round to 256 values that include zero, in the range of these values."""
    with torch.no_grad():
        span = values.amax().clamp(min=0) - values.amin().clamp(max=0)
        scale = (span.float() / _ACTIVATION_STEPS).clamp_(min=_MIN_SCALE)
    rounded: Tensor = _Round.apply(values, scale)  # type: ignore[no-untyped-call]
    return rounded


def round_weights(weight: Tensor) -> Tensor:
    """Round each output channel to multiples of its largest value divided by the levels."""
    with torch.no_grad():
        dims = tuple(range(1, weight.dim()))
        scale = (weight.abs().amax(dims, keepdim=True) / WEIGHT_LEVELS).clamp_(min=_MIN_SCALE)
    rounded: Tensor = _Round.apply(weight, scale)  # type: ignore[no-untyped-call]
    return rounded


class _FakeConv1d(nn.Conv1d):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  torch's name
        outputs: Tensor = self._conv_forward(round_activations(input), round_weights(self.weight), self.bias)
        return outputs


class _FakeConv2d(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        outputs: Tensor = self._conv_forward(round_activations(input), round_weights(self.weight), self.bias)
        return outputs


class _FakeLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return nn.functional.linear(round_activations(input), round_weights(self.weight), self.bias)


class _FakeBatchNorm1d(nn.BatchNorm1d):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return round_activations(super().forward(input))


class _FakeBatchNorm2d(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return round_activations(super().forward(input))


# Exact types only: a subclass may compute something else.
_FAKE: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: _FakeConv1d,
    nn.Conv2d: _FakeConv2d,
    nn.Linear: _FakeLinear,
    nn.BatchNorm1d: _FakeBatchNorm1d,
    nn.BatchNorm2d: _FakeBatchNorm2d,
}


_ORIGINAL = {fake: original for original, fake in _FAKE.items()}


def apply_fake_quantization(model: nn.Module, skip: Collection[str] = ()) -> None:
    """Let convolutions and linear layers round their inputs and weights, and BatchNorm its outputs, as int8 does.

    `undo_fake_quantization` reverts it, in copies of the model too. Layers in `skip` (paths of modules) stay in float,
    and so do subclasses of torch's layers.
    """
    for name, module in model.named_modules():
        if type(module) in _FAKE and name not in skip:
            module.__class__ = _FAKE[type(module)]


def undo_fake_quantization(model: nn.Module) -> None:
    """Turn layers that round back into torch's."""
    for module in model.modules():
        if is_fake_quantized(module):
            module.__class__ = _ORIGINAL[type(module)]


def is_fake_quantized(module: nn.Module) -> bool:
    """Return True if this layer rounds."""
    return type(module) in _ORIGINAL
