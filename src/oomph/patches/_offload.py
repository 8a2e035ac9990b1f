"""Activations in pinned host memory between forward and backward."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef

from ..settings import MIN_OFFLOADED
from ._checkpointing import find_block
from ._patch import Patch

_TYPES = (Tensor, nn.Parameter, FakeTensor)


class HostMemory(Protocol):
    """Where offloaded tensors are."""

    def store(self, tensor: Tensor) -> Tensor:
        """Return a copy on the host."""

    def load(self, copy: Tensor, device: torch.device) -> Tensor:
        """Return a copy on the device."""


class PinnedMemory:
    """Pinned memory. Copies are ordered by the current stream, so nothing waits for them."""

    def store(self, tensor: Tensor) -> Tensor:
        """Return a copy on the host."""
        copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        return copy.copy_(tensor, non_blocking=True)

    def load(self, copy: Tensor, device: torch.device) -> Tensor:
        """Return a copy on the device."""
        return copy.to(device, non_blocking=True)


def apply_offload(model: nn.Module, paths: Iterable[str], memory: HostMemory | None = None) -> Patch:
    """Keep what the modules at these paths save for backward on the host; "" is the whole model.

    Weights, buffers and tensors below 1 MiB stay on the device. The gradient is the same, bit for bit. Inputs of
    checkpointed modules inside are offloaded, too.

    Raises:
        UsageError: the model has no such module, or its forward has been replaced already.
    """
    patched = [find_block(model, path) for path in paths]
    for module in patched:
        module.forward = _OffloadedForward(module, memory or PinnedMemory())

    def undo() -> None:
        for module in patched:
            module.__dict__.pop("forward", None)

    return Patch(undo)


class _OffloadedForward:
    """The forward of an offloaded module. No closure, so that a copy or a pickle of the model runs its own module."""

    def __init__(self, module: nn.Module, memory: HostMemory) -> None:
        self._module, self._memory = module, memory

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward = type(self._module).forward.__get__(self._module)
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        saved = _SavedTensors(self._module, self._memory)
        with torch.autograd.graph.saved_tensors_hooks(saved.pack, saved.unpack):
            return forward(*args, **kwargs)


@dataclass(frozen=True)
class _Offloaded:
    """A tensor on the host, and how it was laid out on the device."""

    copy: Tensor
    shape: torch.Size
    stride: tuple[int, ...]
    device: torch.device


class _SavedTensors:
    """The tensors that one forward pass of a module saves; what several operations save is copied once."""

    def __init__(self, module: nn.Module, memory: HostMemory) -> None:
        self._memory = memory
        tensors = chain(module.parameters(), module.buffers())
        self._weights = {tensor.untyped_storage()._cdata for tensor in tensors if type(tensor) in _TYPES}
        # A reference to a storage keeps its address from being used again, but not its memory.
        self._copies: dict[tuple[Any, ...], tuple[StorageWeakRef, Tensor]] = {}

    def pack(self, tensor: Tensor) -> Tensor | _Offloaded:
        """Copy a tensor to the host, if it is worth it."""
        is_plain = type(tensor) in _TYPES and tensor.layout is torch.strided
        if not is_plain or tensor.numel() * tensor.element_size() < MIN_OFFLOADED:
            return tensor
        storage = tensor.untyped_storage()
        if storage._cdata in self._weights:
            return tensor
        if not _is_dense(tensor):
            tensor = tensor.contiguous()
            storage = tensor.untyped_storage()
        key = storage._cdata, tensor._version, tensor.storage_offset(), tensor.numel(), tensor.dtype
        if key not in self._copies:
            flat = tensor.as_strided((tensor.numel(),), (1,))
            self._copies[key] = StorageWeakRef(storage), self._memory.store(flat)
        return _Offloaded(self._copies[key][1], tensor.shape, tensor.stride(), tensor.device)

    def unpack(self, saved: Tensor | _Offloaded) -> Tensor:
        """Return the tensor on its device."""
        if isinstance(saved, Tensor):
            return saved
        return self._memory.load(saved.copy, saved.device).as_strided(saved.shape, saved.stride)


def _is_dense(tensor: Tensor) -> bool:
    """Return True if a tensor fills its part of memory, in any order of its dimensions."""
    size = 1
    for stride, count in sorted(pair for pair in zip(tensor.stride(), tensor.shape, strict=True) if pair[1] > 1):
        if stride != size:
            return False
        size *= count
    return True
