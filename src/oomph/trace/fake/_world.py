"""The surroundings in which the user's code runs on fake tensors.

Real tensors that meet fake ones become fake, every device is the CPU, and values can be read (`.numpy()`, `.tolist()`).
The conversions happen where Python calls torch, above autograd, so that no real tensor receives a gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._mode_utils import no_dispatch
from torch.utils.weak import WeakTensorKeyDictionary

from ._copier import FakeCopier
from ._data_dependent import DataAssumptions
from ._grouped_products import grouped_product
from ._known_values import forget, set_known
from ._likely_values import DENSITY
from ._packed_sequences import pack_padded, pad_packed, run_packed
from ._value_tracker import BuildMode, ValueTracker

_PLAIN = {Tensor, nn.Parameter}
_KEPT_DEVICES = {"cpu", "meta"}


class FakeWorld:
    """Fake tensors, the objects copied onto them, and what is known about their values.

    Args:
        assumed: assumptions about values that depend on data.
    """

    def __init__(self, assumed: DataAssumptions) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.values = ValueTracker(assumed)
        self.copier = FakeCopier(self.to_fake)
        self.on_stray: Callable[[Tensor], None] | None = None  # called with each real tensor's fake one
        self._fakes = WeakTensorKeyDictionary()

    def is_ours(self, tensor: Tensor) -> bool:
        """Return True for fake tensors of this world, and for subclasses that wrap some."""
        if type(tensor) not in _PLAIN and not isinstance(tensor, FakeTensor):
            return True
        if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return True
        return isinstance(tensor, FakeTensor) and tensor.fake_mode is self.mode and tensor.device.type == "cpu"

    def to_fake(self, tensor: Tensor) -> Tensor:
        """Return the fake tensor that stands for a tensor, always the same one."""
        if self.is_ours(tensor):
            return tensor
        fake: Tensor | None = self._fakes.get(tensor)
        if fake is None:
            fake = self._fakes[tensor] = self._new_fake(tensor)
        return fake

    def _new_fake(self, tensor: Tensor) -> Tensor:
        is_parameter = isinstance(tensor, nn.Parameter)
        with self._unpatched():
            data = tensor.detach()
            if type(data) is Tensor and data.device.type == "cpu":
                fake: Tensor = self.mode.from_tensor(data)
            elif data.layout is torch.strided:
                with self.mode:
                    fake = torch.empty_strided(data.shape, data.stride(), dtype=data.dtype, device="cpu")
            else:
                fake = self.mode.from_tensor(data.cpu())
            if is_parameter:
                fake = nn.Parameter(fake, tensor.requires_grad)
            elif tensor.requires_grad and tensor.is_leaf:
                fake.requires_grad_()
            elif not isinstance(tensor, FakeTensor) and data.device.type == "cpu":
                set_known(fake, data)
        if self.on_stray is not None:
            self.on_stray(fake)
        return fake

    @contextmanager
    def _unpatched(self) -> Iterator[None]:
        with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            yield

    @contextmanager
    def building(self) -> Iterator[None]:
        """Run the code inside on fake tensors, without recording it."""
        self.values.is_building = True
        try:
            with self.mode, BuildMode(self.values), self.functions():
                yield
        finally:
            self.values.is_building = False

    def functions(self, *, on_gpu: bool = False) -> TorchFunctionMode:
        """Return the mode that converts arguments and results of torch's functions."""
        return _Functions(self, on_gpu=on_gpu)


class AnyDeviceIsCpu(TorchFunctionMode):
    """Mode in which code for a GPU runs on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is Tensor.cuda:
            return args[0]
        return func(*_on_cpu(func, args, kwargs), **kwargs)


class _Functions(TorchFunctionMode):
    def __init__(self, world: FakeWorld, *, on_gpu: bool) -> None:
        super().__init__()
        self._world = world
        self._replacements = _replacements(world)
        if not on_gpu:  # CUDA's kernels have a rule of their own
            self._replacements |= _grouped_products()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        args = tuple(self._convert(arg) for arg in _on_cpu(func, args, kwargs))
        for name, value in kwargs.items():
            kwargs[name] = self._convert(value)
        replacement = self._replacements.get(func)
        return self._convert((replacement or func)(*args, **kwargs))

    def _convert(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._world.to_fake(value) if type(value) in _PLAIN else value
        if type(value) is tuple or type(value) is list:
            converted = [self._convert(item) for item in value]
            is_same = all(new is old for new, old in zip(converted, value, strict=True))
            return value if is_same else type(value)(converted)
        return value


def _on_cpu(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Return the positional arguments with every device replaced by the CPU; change `kwargs` likewise."""
    if func in _device_constructors() and kwargs.get("device") is None:
        # A default device (`with torch.device("cuda")`) would be filled in after this.
        default = torch.get_default_device()
        kwargs["device"] = default if default.type in _KEPT_DEVICES else torch.device("cpu")
    elif kwargs.get("device") is not None:
        kwargs["device"] = _cpu_for(kwargs["device"])
    if "pin_memory" in kwargs:
        kwargs["pin_memory"] = False
    if func is Tensor.to and len(args) > 1 and isinstance(args[1], (str, int, torch.device)):
        return args[0], _cpu_for(args[1]), *args[2:]
    return tuple(_cpu_for(arg) if isinstance(arg, torch.device) else arg for arg in args)


def _cpu_for(device: Any) -> torch.device:
    if isinstance(device, int) or str(device).isdigit():
        return torch.device("cpu")
    name = str(device).partition(":")[0]
    return torch.device(name if name in _KEPT_DEVICES else "cpu")


def _replacements(world: FakeWorld) -> dict[Any, Callable[..., Any]]:
    def to_numpy(tensor: Tensor, *_: Any, **__: Any) -> Any:
        values = world.values.read_values(tensor)
        with no_dispatch():
            return values.numpy()

    def array(tensor: Tensor, dtype: Any = None) -> Any:
        values = to_numpy(tensor)
        return values if dtype is None else values.astype(dtype, copy=False)

    def to_list(tensor: Tensor) -> Any:
        values = world.values.read_values(tensor)
        with no_dispatch():
            return values.tolist()

    def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
        classes = num_classes if num_classes > 0 else int(tensor.max()) + 1
        out = torch.zeros(*tensor.shape, classes, dtype=torch.int64)
        out.scatter_(-1, tensor.unsqueeze(-1), 1)
        setattr(out, DENSITY, 1 / classes)
        return out

    recurrent = {
        getattr(torch._VF, kind): functools.partial(run_packed, getattr(torch._VF, kind), kind)
        for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    }
    return {
        Tensor.cuda: lambda tensor, *_, **__: tensor,
        Tensor.pin_memory: lambda tensor, *_, **__: tensor,
        Tensor.numpy: to_numpy,
        Tensor.__array__: array,
        Tensor.tolist: to_list,
        Tensor.__deepcopy__: deepcopy_fake,
        Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
        torch.nn.functional.one_hot: one_hot,
        torch._VF._pack_padded_sequence: functools.partial(pack_padded, world.values),
        torch._VF._pad_packed_sequence: functools.partial(pad_packed, world.values),
        **recurrent,
    }


def deepcopy_fake(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """Copy a fake tensor; torch's own deepcopy would copy the mode it belongs to."""
    if id(tensor) in memo:
        return memo[id(tensor)]  # type: ignore[no-any-return]
    with torch.no_grad():
        copied = tensor.detach().clone()
    if getattr(tensor, "_is_param", False) or isinstance(tensor, nn.Parameter):
        copied = nn.Parameter(copied, tensor.requires_grad)
    elif tensor.requires_grad:
        copied.requires_grad_()
    memo[id(tensor)] = copied
    return copied


def _set_data(tensor: Tensor, data: Tensor) -> None:
    forget(tensor)
    Tensor.data.__set__(tensor, data)  # type: ignore[attr-defined]


def _grouped_products() -> dict[Any, Callable[..., Any]]:
    return {
        function: functools.partial(grouped_product, function)
        for owner, name in ((torch, "_grouped_mm"), (torch.nn.functional, "grouped_mm"))
        if (function := getattr(owner, name, None)) is not None
    }
