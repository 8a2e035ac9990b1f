"""Settings applied to a model and an optimizer that are already in use; parameters stay the same objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from ..settings import Settings
from ._autocast import AUTOCAST_DTYPES, autocast
from ._checkpointing import apply_checkpointing
from ._loss_chunks import apply_loss_chunks
from ._offload import HostMemory, apply_offload
from ._optimizer_variant import set_variant
from ._patch import Patch

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by number of dimensions


def apply_settings(
    model: nn.Module, optimizers: Sequence[Optimizer], settings: Settings, memory: HostMemory | None = None
) -> Patch:
    """Apply all settings that belong to a model, its optimizers and the loss; all or nothing.

    Args:
        model: the model.
        optimizers: its optimizers.
        settings: the settings.
        memory: where offloaded activations are; pinned memory by default.

    Raises:
        UsageError: the model or an optimizer can't have a setting.
    """
    steps: list[Callable[[], Patch]] = [
        *(lambda optimizer=optimizer: set_variant(optimizer, settings.optimizer) for optimizer in optimizers),
        lambda: apply_checkpointing(model, settings.checkpointing),
        lambda: apply_offload(model, settings.offload, memory),
        lambda: apply_loss_chunks(settings.loss_chunks),
        lambda: _autocast_forward(model, settings.precision),
        lambda: _set_memory_format(model, optimizers, settings.memory_format),
    ]
    patches: list[Patch] = []

    def undo() -> None:
        for patch in reversed(patches):
            patch.undo()

    try:
        patches.extend(step() for step in steps)
    except BaseException:
        undo()
        raise
    return Patch(undo)


def _autocast_forward(model: nn.Module, precision: str) -> Patch:
    """Run the model's forward in autocast; it returns float32, so that a loss outside is as exact as before.

    Where the training loop has its own autocast, the forward runs in that.
    """
    if precision not in AUTOCAST_DTYPES:
        return Patch(lambda: None)
    forward = model.forward
    had_own = "forward" in vars(model)

    def in_autocast(*args: Any, **kwargs: Any) -> Any:
        device = next((param.device.type for param in model.parameters()), "cpu")
        if torch.is_autocast_enabled(device):
            return forward(*args, **kwargs)
        with autocast(precision, device):
            return tree_map(_to_float, forward(*args, **kwargs))

    model.forward = in_autocast

    def undo() -> None:
        if had_own:
            model.forward = forward
        else:
            vars(model).pop("forward", None)

    return Patch(undo)


def _to_float(value: Any) -> Any:
    is_half = isinstance(value, Tensor) and value.dtype in AUTOCAST_DTYPES.values()
    return value.float() if is_half else value


def _set_memory_format(model: nn.Module, optimizers: Sequence[Optimizer], memory_format: str) -> Patch:
    """Change the layout of weights, gradients and optimizer state together: fused kernels need them alike."""
    if memory_format != "channels_last":
        return Patch(lambda: None)
    before = [(tensor, tensor.stride()) for tensor in _tensors_of(model, optimizers)]
    for tensor, _ in before:
        tensor.data = tensor.data.contiguous(memory_format=_CHANNELS_LAST[tensor.dim()])

    def undo() -> None:
        for tensor, stride in before:
            restored = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
            tensor.data = restored.copy_(tensor.data)

    return Patch(undo)


def _tensors_of(model: nn.Module, optimizers: Sequence[Optimizer]) -> Iterator[Tensor]:
    """Yield the tensors with a channel dimension: parameters, buffers, gradients and what optimizers keep for them."""
    seen: set[int] = set()
    for tensor in (*model.parameters(), *model.buffers()):
        yield from _once((tensor, tensor.grad), seen)
    for optimizer in optimizers:
        for param, state in optimizer.state.items():
            values = state.values() if isinstance(state, dict) else ()
            yield from _once((value for value in values if _is_like(value, param)), seen)


def _once(tensors: Any, seen: set[int]) -> Iterator[Tensor]:
    for tensor in tensors:
        if tensor is not None and tensor.dim() in _CHANNELS_LAST and id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor


def _is_like(value: object, param: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == param.shape
