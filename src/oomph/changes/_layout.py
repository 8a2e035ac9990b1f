"""Precision and memory layout of a model's parameters and buffers, and of a batch.

Written out instead of `Module.to`, which refuses fake tensors; ties between parameters are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..settings import Settings


def convert_model(model: nn.Module, settings: Settings) -> None:
    """Put a model into the precision and layout of its settings, in place."""
    change = _change(settings)
    if change is None:
        return
    seen: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is None:
                continue
            if id(parameter) not in seen:
                seen[id(parameter)] = nn.Parameter(change(parameter.detach()), parameter.requires_grad)
            module._parameters[name] = seen[id(parameter)]
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = change(buffer)


def convert_batch(batch: Any, settings: Settings) -> Any:
    """Put the floating-point tensors of a batch into the precision and layout of the settings."""
    change = _change(settings)
    if change is None:
        return batch
    return tree_map(lambda value: change(value) if isinstance(value, Tensor) else value, batch)


def _change(settings: Settings) -> Callable[[Tensor], Tensor] | None:
    low, last = settings.precision == "bf16", settings.memory_format == "channels_last"
    if not low and not last:
        return None

    def change(tensor: Tensor) -> Tensor:
        dtype = torch.bfloat16 if low and tensor.is_floating_point() else tensor.dtype
        if last and tensor.dim() == 4:  # noqa: PLR2004  images, and the weights of their convolutions
            return tensor.to(dtype).contiguous(memory_format=torch.channels_last)
        if last and tensor.dim() == 5:  # noqa: PLR2004
            return tensor.to(dtype).contiguous(memory_format=torch.channels_last_3d)
        return tensor.to(dtype)

    return change
