"""Precision and memory layout of a model's parameters and buffers, and of a batch.

Written out instead of `Module.to`, which refuses fake tensors; ties between parameters are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..settings import Settings
from ._patch import Patch

Form = tuple[torch.dtype, torch.memory_format]
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by dimensions: images and the weights of convolutions


def convert_model(model: nn.Module, settings: Settings) -> Patch:
    """Put a model into the precision and layout of its settings, in place.

    Undone, parameters and buffers have their old type and layout again, with the values they have by then. Parameters
    are new objects each time, so optimizers are made afterwards.
    """
    form = _wanted(settings)
    if form is None:
        return Patch(lambda: None)
    before = {place: _form(tensor) for place, tensor in _tensors(model)}
    _convert(model, lambda _, tensor: form(tensor))
    return Patch(lambda: _convert(model, lambda place, _: before[place]))


def convert_batch(batch: Any, settings: Settings) -> Any:
    """Put the floating-point tensors of a batch into the precision and layout of the settings."""
    form = _wanted(settings)
    if form is None:
        return batch
    return tree_map(lambda value: _put(value, form(value)) if isinstance(value, Tensor) else value, batch)


def _wanted(settings: Settings) -> Callable[[Tensor], Form] | None:
    """The form that a tensor takes under the settings; None where they leave every tensor as it is."""
    low, last = settings.precision == "bf16", settings.memory_format == "channels_last"
    if not low and not last:
        return None

    def form(tensor: Tensor) -> Form:
        dtype = torch.bfloat16 if low and tensor.is_floating_point() else tensor.dtype
        layout = _LAST.get(tensor.dim(), torch.preserve_format) if last else torch.preserve_format
        return dtype, layout

    return form


def _form(tensor: Tensor) -> Form:
    last = _LAST.get(tensor.dim())
    if last is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=last):
        return tensor.dtype, last
    return tensor.dtype, torch.contiguous_format


def _put(tensor: Tensor, form: Form) -> Tensor:
    dtype, layout = form
    changed = tensor.to(dtype)
    return changed if layout is torch.preserve_format else changed.contiguous(memory_format=layout)


def _tensors(model: nn.Module) -> Iterator[tuple[tuple[str, str], Tensor]]:
    for path, module in model.named_modules():
        for table in (module._parameters, module._buffers):
            for name, tensor in list(table.items()):
                if tensor is not None:
                    yield (path, name), tensor


def _convert(model: nn.Module, form: Callable[[tuple[str, str], Tensor], Form]) -> None:
    made: dict[int, nn.Parameter] = {}
    kept = []  # what is replaced lives until the end, so that no two tensors have one identity
    modules = dict(model.named_modules())
    for (path, name), tensor in _tensors(model):
        kept.append(tensor)
        module = modules[path]
        if not isinstance(tensor, nn.Parameter):
            module._buffers[name] = _put(tensor, form((path, name), tensor))
            continue
        if id(tensor) not in made:
            made[id(tensor)] = nn.Parameter(_put(tensor.detach(), form((path, name), tensor)), tensor.requires_grad)
        module._parameters[name] = made[id(tensor)]
