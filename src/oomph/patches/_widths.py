"""Numbers of channels of a model's layers: what structured pruning changes, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from ..errors import UsageError, quote

Widths = Mapping[str, tuple[int, int]]  # inputs and outputs of a layer, by its path

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BATCH_NORM = nn.modules.batchnorm._BatchNorm


def read_widths(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Return inputs and outputs of all convolutions, linear layers and BatchNorms, by their paths."""
    return {path: widths for path, layer in model.named_modules() if (widths := _widths(layer)) is not None}


def set_widths(model: nn.Module, widths: Widths) -> None:
    """Give layers of a model other numbers of channels, with fresh weights; layers that have them are unchanged.

    Raises:
        UsageError: a path is not that of a layer with channels.
    """
    layers = dict(model.named_modules())
    for path, (inputs, outputs) in widths.items():
        layer = layers.get(path)
        current = None if layer is None else _widths(layer)
        if current is None or min(inputs, outputs) < 1:
            raise UsageError(f"the widths name {quote(path)}, which this model doesn't have", "use the original model")
        if current != (inputs, outputs):
            _resize(layer, inputs, outputs)


def _widths(layer: nn.Module) -> tuple[int, int] | None:
    if isinstance(layer, _CONVOLUTIONS):
        return layer.in_channels, layer.out_channels
    if isinstance(layer, nn.Linear):
        return layer.in_features, layer.out_features
    if isinstance(layer, _BATCH_NORM):
        return layer.num_features, layer.num_features
    return None


def _resize(layer: Any, inputs: int, outputs: int) -> None:
    """Change a layer in place: all its options stay, whichever it has."""
    if isinstance(layer, _CONVOLUTIONS):
        layer.groups = inputs if layer.groups == layer.in_channels > 1 else layer.groups  # depthwise stays so
        layer.in_channels, layer.out_channels = inputs, outputs
        _replace_tensors(layer, weight=(outputs, inputs // layer.groups, *layer.kernel_size), bias=(outputs,))
    elif isinstance(layer, nn.Linear):
        layer.in_features, layer.out_features = inputs, outputs
        _replace_tensors(layer, weight=(outputs, inputs), bias=(outputs,))
    else:
        layer.num_features = outputs
        _replace_tensors(layer, **dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (outputs,)))
    layer.reset_parameters()


def _replace_tensors(layer: nn.Module, **shapes: tuple[int, ...]) -> None:
    for name, shape in shapes.items():
        tensor = getattr(layer, name)
        if tensor is not None:
            fresh = tensor.detach().new_empty(shape)
            is_parameter = isinstance(tensor, nn.Parameter)
            setattr(layer, name, nn.Parameter(fresh, tensor.requires_grad) if is_parameter else fresh)
