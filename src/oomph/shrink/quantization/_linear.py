"""int8 linear layers of any module, by torchao: weights alone, or activations as well while it runs."""

from __future__ import annotations

import copy
import logging
import warnings
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import InvalidFile, MissingFile, UsageError, quote
from ...files import write_atomically
from ...units import format_size
from ._layers import describe, outputs_of, relative_difference, weight_bytes, weighted_layers

METHODS = ("int8-dynamic", "int8-weight-only")
_MIN_SAVING = 0.05  # of the bytes; less isn't worth another file
_FORMAT, _VERSION = "oomph quantized", 1


@dataclass(frozen=True)
class QuantizedModel:
    """A model with int8 linear layers.

    Attributes:
        model: the copy that is quantized, in eval mode.
        method: how it is quantized.
        bytes_before, bytes_after: bytes of parameters and buffers.
        share: fraction of the parameters that are int8.
        float_layers: paths of the layers with weights that stay in float.
        difference: largest difference of the outputs, relative to the largest output; None if there were no inputs.
    """

    model: nn.Module
    method: str
    bytes_before: int
    bytes_after: int
    share: float
    float_layers: tuple[str, ...]
    difference: float | None = None


def quantize(model: nn.Module, method: str, inputs: tuple[Any, ...] | None = None) -> QuantizedModel:
    """Quantize the linear layers of a copy of a model to int8; the model itself is not changed.

    Args:
        model: the model, on any device.
        method: "int8-weight-only" stores weights as int8 and computes in float; "int8-dynamic" computes in int8, with
            scales of the activations that are found in each run.
        inputs: positional inputs; the copy runs on them before and after, and the difference is reported.

    Raises:
        UsageError: the method is unknown, torchao is missing, or almost none of the weights are in linear layers.
    """
    config = _config(method)
    quantized = copy.deepcopy(model).eval()
    before = None if inputs is None else outputs_of(quantized, inputs)
    bytes_before = weight_bytes(quantized)
    layers = _linear_layers(quantized)
    _torchao().quantize_(quantized, config, filter_fn=lambda _, name: name in layers)
    bytes_after = weight_bytes(quantized)
    others = {name: layer for name, layer in weighted_layers(quantized) if name not in layers}
    if bytes_after > (1 - _MIN_SAVING) * bytes_before:
        raise _no_saving(method, others.values(), bytes_before, bytes_after)
    total = sum(parameter.numel() for parameter in model.parameters())
    return QuantizedModel(
        model=quantized,
        method=method,
        bytes_before=bytes_before,
        bytes_after=bytes_after,
        share=sum(layer.weight.numel() for layer in layers.values()) / total,
        float_layers=tuple(others),
        difference=None if inputs is None else relative_difference(before, outputs_of(quantized, inputs)),
    )


def save_quantized(path: Path, quantized: QuantizedModel) -> None:
    """Write the tensors of a quantized model; `load_quantized` reads them.

    Raises:
        OSError: the disk is full or not writable; a previous file is untouched.
    """
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "method": quantized.method,
        "state": quantized.model.state_dict(),
    }
    write_atomically(path, lambda file: torch.save(content, file))


def load_quantized(path: Path, model: nn.Module) -> nn.Module:
    """Return a copy of a float model with the quantized weights of a file; nothing in the file is executed.

    Args:
        path: a file of `save_quantized`.
        model: a model of the same class and sizes; its weights don't matter.

    Raises:
        MissingFile: there is no such file.
        InvalidFile: it wasn't written by `save_quantized`, or is damaged.
        UsageError: it is of another model, or torchao is missing.
    """
    _torchao()  # registers its tensors as safe to load
    if not path.is_file():
        raise MissingFile(f"there is no file {str(path)!r}", "pass a file of `save_quantized`")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001  torch raises any kind for a damaged file
        raise InvalidFile(f"{path} can't be read ({type(error).__name__})", "save the model again") from None
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (_FORMAT, _VERSION):
        raise InvalidFile(f"{path} is not a file of `save_quantized`", "pass another file")
    loaded = copy.deepcopy(model).eval()
    try:
        loaded.load_state_dict(content["state"], assign=True)
    except RuntimeError:
        raise UsageError(
            f"{path} has the weights of another model", "pass a model of the same class and sizes"
        ) from None
    return loaded


def _linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return the layers that torchao can quantize, by path.

    A weight that several modules share stays in float, because an int8 copy for one of them would need more memory.
    """
    uses = Counter(id(parameter) for module in model.modules() for parameter in module.parameters(recurse=False))
    return {
        name: module
        for name, module in model.named_modules()
        # Subclasses compute something else, and torchao fails on a single input feature.
        if type(module) is nn.Linear and uses[id(module.weight)] == 1 and module.in_features > 1
    }


def _no_saving(method: str, others: Collection[nn.Module], before: int, after: int) -> UsageError:
    stay = f"{describe(others)} would stay in float" if others else "the model has no weights"
    sizes = format_size(before) if before == after else f"{format_size(before)} before and {format_size(after)}"
    return UsageError(
        f"{method} quantizes linear layers alone: {stay}, and the weights would be {sizes} "
        f"{'before and after' if before == after else 'after'}",
        "use `oomph shrink quantize` for a detector, or `oomph.shrink.quantize_to_onnx` for another model",
    )


def _config(method: str) -> Any:
    if method not in METHODS:
        raise UsageError(f"the method is {quote(method)}", f"choose {' or '.join(METHODS)}")
    torchao = _torchao()
    if method == "int8-dynamic":
        return torchao.Int8DynamicActivationInt8WeightConfig()
    return torchao.Int8WeightOnlyConfig()


def _torchao() -> Any:
    """Import torchao without its warnings about kernels of GPUs that aren't there."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torchao import quantization  # noqa: PLC0415  an extra
    except ImportError:
        raise UsageError(
            "int8 linear layers need torchao, which isn't installed", "run `pip install 'oomph[shrink]'`"
        ) from None
    finally:
        logging.disable(level)
    return quantization
