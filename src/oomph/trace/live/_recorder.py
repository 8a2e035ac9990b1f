"""Recorder of a live program: its real tensors are in the host's memory, its fake tensors on the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

from .._allocation_recorder import AllocationRecorder
from .._device import CpuDevice, CudaDevice
from .._trace import StorageKind
from ..fake import ValueTracker, set_known

_UNSCALE = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default
_UPDATE_SCALE = torch.ops.aten._amp_update_scale_.default
_COPY = torch.ops.aten.copy_.default


class LiveRecorder(AllocationRecorder):
    """Dispatch mode that runs operations on fake tensors and records them; all other operations run as usual.

    An operation that gets real and fake tensors runs on the device; the real ones are copied there, and the copies live
    as long as the originals.
    """

    def __init__(self, device: CudaDevice | CpuDevice, values: ValueTracker, *, stacks: bool = False) -> None:
        super().__init__(device, values, stacks=stacks)
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.in_operation = False
        self._is_creating = False
        self._copies = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if FakeTensor not in types and not self._is_creating:
            return func(*args, **kwargs)
        if func.namespace == "c10d":
            return _run_collective(func, args, kwargs)
        if func in {_UNSCALE, _UPDATE_SCALE}:
            return args[0] if func is _UPDATE_SCALE else None  # in place; for fake tensors torch allocates copies
        if func is _COPY and not isinstance(args[0], FakeTensor):
            return args[0]  # from the device to the host
        with self._operation(), self.mode:
            if any(
                isinstance(leaf, Tensor) and not isinstance(leaf, FakeTensor) for leaf in tree_leaves((args, kwargs))
            ):
                place = self._unrecorded_copy if func is _COPY else self._copy
                args, kwargs = tree_map(lambda leaf: place(leaf) if isinstance(leaf, Tensor) else leaf, (args, kwargs))
            return super().__torch_dispatch__(func, types, args, kwargs)

    @property
    def is_used(self) -> bool:
        """True once there was a tensor on the device."""
        return bool(self._storages)

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Create the tensors inside on the device."""
        before, self._is_creating = self._is_creating, True
        try:
            yield
        finally:
            self._is_creating = before

    def to_device(self, tensor: Tensor, kind: StorageKind = StorageKind.INPUT) -> Tensor:
        """Return a copy of a real tensor on the device."""
        layout = torch.empty_like(tensor, device="meta")  # how a copy would be laid out
        with self.creating(), torch.no_grad():
            copy = torch.empty_strided(layout.shape, layout.stride(), dtype=tensor.dtype)
        self.label(copy, kind)
        if kind is StorageKind.INPUT:
            set_known(copy, tensor)
        return copy.requires_grad_(tensor.requires_grad)

    def to_host(self, tensor: Tensor) -> Tensor:
        """Return a real tensor with the values of a fake one, as far as they are known."""
        return self.values.read_values(tensor)

    def replace(self, tensor: Tensor, other: Tensor) -> None:
        """Give a tensor the contents of another one, whichever of both are real; every reference to it stays valid."""
        self._copies.pop(tensor, None)
        gradient = tensor.grad
        tensor.grad = None
        for name in ("__class__", "__dict__"):
            value = getattr(tensor, name)
            setattr(tensor, name, getattr(other, name))
            setattr(other, name, value)
        torch._C._swap_tensor_impl(tensor, other)
        if gradient is not None:
            is_moved = isinstance(tensor, FakeTensor) and not isinstance(gradient, FakeTensor)
            tensor.grad = self.to_device(gradient, StorageKind.GRADIENT) if is_moved else gradient

    def _copy(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor.dim() == 0:  # CUDA's kernels take a number
            return self._unrecorded_copy(tensor)
        copy: Tensor | None = self._copies.get(tensor)
        if copy is None:
            copy = self._unrecorded_copy(tensor)
            self.adopt(copy, StorageKind.PARAMETER if isinstance(tensor, nn.Parameter) else StorageKind.INPUT)
            self._copies[tensor] = copy
        return copy

    def _unrecorded_copy(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        copy = self.mode.from_tensor(tensor.detach())
        set_known(copy, tensor.detach())
        return copy

    @contextmanager
    def _operation(self) -> Iterator[None]:
        """Let `device` of fake tensors be the one that they are implemented on."""
        before, self.in_operation = self.in_operation, True
        try:
            yield
        finally:
            self.in_operation = before


def _run_collective(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a collective of one rank on single numbers: tensors on the device stay as they are."""

    def number(leaf: Any) -> Any:
        return torch.zeros(1, dtype=leaf.dtype) if isinstance(leaf, FakeTensor) else leaf

    return func(*tree_map(number, args), **tree_map(number, kwargs))
