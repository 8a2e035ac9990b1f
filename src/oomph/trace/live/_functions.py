"""Functions that move tensors between host and device, or read their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from ._recorder import LiveRecorder

GPU = torch.device("cuda:0")
LEGACY_TYPES = {
    "FloatTensor": torch.float32,
    "DoubleTensor": torch.float64,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}


@dataclass(frozen=True)
class LegacyTensorType:
    """A type such as `torch.cuda.FloatTensor`: a constructor of sizes or data, and an argument of `Tensor.type`."""

    dtype: torch.dtype

    def __call__(self, *args: Any) -> Tensor:
        """Create a tensor on the device."""
        if args and not isinstance(args[0], int):
            return torch.tensor(args[0], dtype=self.dtype, device=GPU)
        return torch.empty(args, dtype=self.dtype, device=GPU)


class DeviceFunctions(TorchFunctionMode):
    """Mode in which `cuda` names the device of the recorder: tensors that are moved or created there become fake.

    Args:
        recorder: where the fake tensors are recorded.
        is_host_only: True for a program that moves nothing itself; its fake tensors look like those of the CPU.
    """

    def __init__(self, recorder: LiveRecorder, *, is_host_only: bool = False) -> None:
        super().__init__()
        self.recorder, self.is_host_only = recorder, is_host_only

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if self.recorder.in_operation:
            return func(*args, **kwargs)
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(self, func, *args, **kwargs)
        if not names_gpu(kwargs.get("device")):
            return func(*args, **kwargs)
        kwargs["device"] = torch.device("cpu")
        if func in _FROM_DATA:
            return self.recorder.to_device(func(*args, **kwargs))
        with self.recorder.creating():
            return func(*args, **kwargs)

    def device_of(self, tensor: FakeTensor) -> torch.device:
        """Return the device that a fake tensor shows to the program."""
        if tensor.fake_mode.in_kernel_invocation:
            return torch.device("meta")
        return tensor.fake_device if self.recorder.in_operation or self.is_host_only else GPU

    def move(self, tensor: Tensor, device: torch.device) -> Tensor:
        """Move a tensor to the host or to the device, as the program requests."""
        is_fake = isinstance(tensor, FakeTensor)
        if names_gpu(device):
            return tensor if is_fake else self.recorder.to_device(tensor)
        if device.type == "cpu" and is_fake and not self.is_host_only:
            return self.recorder.to_host(tensor)
        return tensor if device.type == "cpu" else tensor.to(device)


def names_gpu(device: object) -> bool:
    """Return True for every way to write a CUDA device."""
    if isinstance(device, bool) or device is None:
        return False
    if isinstance(device, int):
        return True
    return torch.device(device).type == "cuda" if isinstance(device, (str, torch.device)) else False


def _to(mode: DeviceFunctions, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], Tensor):
        names: tuple[str, ...] = ("other", "non_blocking", "copy")
    elif args and isinstance(args[0], torch.dtype):
        names = ("dtype", "non_blocking", "copy")
    else:
        names = ("device", "dtype", "non_blocking", "copy")
    options = {**dict(zip(names, args, strict=False)), **kwargs}
    options.pop("non_blocking", None)
    device, other = options.pop("device", None), options.pop("other", None)
    if other is not None:
        device, options["dtype"] = (GPU if isinstance(other, FakeTensor) else torch.device("cpu")), other.dtype
    if options.get("dtype") is None:
        options["dtype"] = tensor.dtype
    converted = func(tensor, **options)
    if device is None:
        return converted
    return mode.move(converted, GPU if names_gpu(device) else torch.device(device))


def _cuda(mode: DeviceFunctions, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    del func, args, kwargs
    return mode.move(tensor, GPU)


def _cpu(mode: DeviceFunctions, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    del func, args, kwargs
    return mode.move(tensor, torch.device("cpu"))


def _on_host(mode: DeviceFunctions, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call a function that reads values."""
    return func(mode.recorder.to_host(tensor) if isinstance(tensor, FakeTensor) else tensor, *args, **kwargs)


def _format(mode: DeviceFunctions, func: Any, tensor: Tensor, spec: str) -> str:
    del mode
    is_number = isinstance(tensor, FakeTensor) and tensor.dim() == 0
    return format(tensor.item(), spec) if is_number else func(tensor, spec)


def _deepcopy(mode: DeviceFunctions, func: Any, tensor: Tensor, memo: dict[int, Any]) -> Any:
    del mode
    if not isinstance(tensor, FakeTensor):
        return func(tensor, memo)
    if id(tensor) not in memo:
        copy: Tensor = tensor.detach().clone()
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = (
            nn.Parameter(copy, tensor.requires_grad) if is_parameter else copy.requires_grad_(tensor.requires_grad)
        )
    return memo[id(tensor)]


def _type(mode: DeviceFunctions, func: Any, tensor: Tensor, kind: Any = None, *_: Any, **__: Any) -> Any:
    if kind is None:
        name: str = func(tensor)
        return name.replace("torch.", "torch.cuda.", 1) if _is_cuda(mode, func, tensor) else name
    if isinstance(kind, str) and kind.startswith("torch.cuda."):
        kind = LegacyTensorType(LEGACY_TYPES[kind.removeprefix("torch.cuda.")])
    if isinstance(kind, LegacyTensorType):
        return mode.move(tensor.to(kind.dtype), GPU)
    return func(tensor, kind)


def _is_cuda(mode: DeviceFunctions, func: Any, tensor: Tensor, *args: Any) -> bool:
    del func, args
    return isinstance(tensor, FakeTensor) and not mode.is_host_only


def _is_cpu(mode: DeviceFunctions, func: Any, tensor: Tensor, *args: Any) -> Any:
    return False if isinstance(tensor, FakeTensor) and not mode.is_host_only else func(tensor, *args)


def _get_device(mode: DeviceFunctions, func: Any, tensor: Tensor) -> int:
    del func
    return 0 if isinstance(tensor, FakeTensor) and not mode.is_host_only else -1


def _unchanged(mode: DeviceFunctions, func: Any, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    del mode, func, args, kwargs
    return tensor


def _nothing(mode: DeviceFunctions, func: Any, *args: Any, **kwargs: Any) -> None:
    del mode, func, args, kwargs


_FROM_DATA = {torch.tensor, torch.as_tensor, torch.asarray}
_HANDLERS: dict[Any, Callable[..., Any]] = {
    Tensor.to: _to,
    Tensor.cuda: _cuda,
    Tensor.cpu: _cpu,
    Tensor.numpy: _on_host,
    Tensor.__array__: _on_host,
    Tensor.__format__: _format,
    Tensor.__deepcopy__: _deepcopy,
    Tensor.get_device: _get_device,
    Tensor.is_cuda.__get__: _is_cuda,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: _is_cpu,  # type: ignore[attr-defined]
    Tensor.pin_memory: _unchanged,
    Tensor.type: _type,
    Tensor.record_stream: _nothing,
}
