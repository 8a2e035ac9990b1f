"""Conversion of models and batches to the dtype and memory format of their settings.

`Module.to` rejects fake tensors, so the conversion is written out here. Tied parameters stay tied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..settings import Settings
from ._patch import Patch

TensorFormat = tuple[torch.dtype, torch.memory_format]
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by number of dimensions


def convert_model(model: nn.Module, settings: Settings) -> Patch:
    """Convert a model in place to the dtype and memory format of its settings.

    Undoing restores the old dtype and layout and keeps the current values. Each conversion creates new parameters, so
    optimizers must be created afterwards.
    """
    target_format = _target_format(settings)
    if target_format is None:
        return Patch(lambda: None)
    before = {key: _current_format(tensor) for key, tensor in _named_tensors(model)}
    _convert(model, lambda _, tensor: target_format(tensor))
    return Patch(lambda: _convert(model, lambda key, _: before[key]))


def convert_batch(batch: Any, settings: Settings) -> Any:
    """Return the batch with its tensors in the dtype and memory format of the settings."""
    target_format = _target_format(settings)
    if target_format is None:
        return batch
    return tree_map(lambda leaf: _to_format(leaf, target_format(leaf)) if isinstance(leaf, Tensor) else leaf, batch)


def _target_format(settings: Settings) -> Callable[[Tensor], TensorFormat] | None:
    """Return the function from a tensor to its format under the settings; None if no tensor changes."""
    to_bf16, channels_last = settings.precision == "bf16", settings.memory_format == "channels_last"
    if not to_bf16 and not channels_last:
        return None

    def target_format(tensor: Tensor) -> TensorFormat:
        dtype = torch.bfloat16 if to_bf16 and tensor.is_floating_point() else tensor.dtype
        layout = _CHANNELS_LAST.get(tensor.dim(), torch.preserve_format) if channels_last else torch.preserve_format
        return dtype, layout

    return target_format


def _current_format(tensor: Tensor) -> TensorFormat:
    channels_last = _CHANNELS_LAST.get(tensor.dim())
    if channels_last is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=channels_last):
        return tensor.dtype, channels_last
    return tensor.dtype, torch.contiguous_format


def _to_format(tensor: Tensor, tensor_format: TensorFormat) -> Tensor:
    dtype, layout = tensor_format
    converted = tensor.to(dtype)
    return converted if layout is torch.preserve_format else converted.contiguous(memory_format=layout)


def _named_tensors(model: nn.Module) -> Iterator[tuple[tuple[str, str], Tensor]]:
    for path, module in model.named_modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in list(tensors.items()):
                if tensor is not None:
                    yield (path, name), tensor


def _convert(model: nn.Module, format_of: Callable[[tuple[str, str], Tensor], TensorFormat]) -> None:
    converted: dict[int, nn.Parameter] = {}
    replaced = []  # keeps the old tensors alive: ids must stay unique until the end
    modules = dict(model.named_modules())
    for (path, name), tensor in _named_tensors(model):
        replaced.append(tensor)
        module = modules[path]
        if not isinstance(tensor, nn.Parameter):
            module._buffers[name] = _to_format(tensor, format_of((path, name), tensor))
            continue
        if id(tensor) not in converted:
            data = _to_format(tensor.detach(), format_of((path, name), tensor))
            converted[id(tensor)] = nn.Parameter(data, tensor.requires_grad)
        module._parameters[name] = converted[id(tensor)]
