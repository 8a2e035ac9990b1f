"""Quantization-aware training of any module."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass

from torch import nn

from ...errors import UsageError, quote
from ...patches import apply_fake_quantization, is_fake_quantized, undo_fake_quantization
from ._layers import weighted_layers


@dataclass(frozen=True)
class PreparedModel:
    """A model whose layers round as in int8, to be trained.

    Attributes:
        model: the copy to train, with parameters of the same names.
        quantized_layers: paths of the layers that round.
        float_layers: paths of the layers with weights that don't.
    """

    model: nn.Module
    quantized_layers: tuple[str, ...]
    float_layers: tuple[str, ...]


def prepare_qat(model: nn.Module, skip: Collection[str] = ()) -> PreparedModel:
    """Copy a model for quantization-aware training; the model itself is not changed.

    Convolutions and linear layers of the copy round their inputs and weights as int8 does, BatchNorm its outputs.
    Train it, call `finish_qat`, and quantize the result.

    Args:
        model: the model.
        skip: paths of layers that stay in float.

    Raises:
        UsageError: no layer can be quantized, or a path in `skip` doesn't exist.
    """
    names = dict(model.named_modules())
    if unknown := [name for name in skip if name not in names]:
        raise UsageError(f"the model has no layer {quote(unknown[0])}", "pass paths of `model.named_modules()`")
    prepared = copy.deepcopy(model)
    apply_fake_quantization(prepared, skip)
    layers = dict(weighted_layers(prepared))
    quantized = tuple(name for name, layer in layers.items() if is_fake_quantized(layer))
    if not quantized:
        raise UsageError(
            f"none of the {len(layers)} layers with weights can be quantized", "pass a model with convolutions"
        )
    return PreparedModel(prepared, quantized, tuple(name for name in layers if name not in quantized))


def finish_qat(model: nn.Module) -> nn.Module:
    """Return a copy of a trained model in float, in eval mode, ready to be quantized."""
    finished = copy.deepcopy(model).eval()
    undo_fake_quantization(finished)
    return finished
