"""Models that move between host and device; every reference to their parameters stays valid."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import Optimizer

from .._device import CudaDevice
from .._trace import StorageKind
from ._cuda_module import replace_attribute
from ._functions import GPU, DeviceFunctions

_HOST_ONLY = "the program moves nothing to a GPU; its models and their inputs are counted as if it did"


class DevicePlacement:
    """Moves models to the device: where the program says so, else those that it trains."""

    def __init__(self, functions: DeviceFunctions) -> None:
        self.functions, self.recorder = functions, functions.recorder

    def install(self, patches: ExitStack) -> None:
        """Replace the methods of modules that move and flatten parameters."""

        def apply(module: nn.Module, fn: Any, recurse: bool = True) -> nn.Module:  # noqa: FBT001, FBT002  torch's
            self._apply(module, fn, recurse=recurse)
            return module

        def flatten(module: nn.RNNBase) -> None:
            self._flatten(module)

        parse = torch._C._nn._parse_to

        def parse_to(*args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], int):  # `model.to(0)`, which torch rejects without a GPU
                args = (GPU, *args[1:])
            if isinstance(kwargs.get("device"), int):
                kwargs["device"] = GPU
            return parse(*args, **kwargs)

        replace_attribute(patches, torch._C._nn, "_parse_to", parse_to)
        replace_attribute(patches, nn.Module, "_apply", apply)
        if isinstance(self.recorder.device, CudaDevice):
            replace_attribute(patches, nn.RNNBase, "flatten_parameters", flatten)

    def place(self, model: nn.Module) -> None:
        """Move a model that is trained to the device if the program leaves it on the host."""
        if not torch.is_grad_enabled() or not any(
            parameter.requires_grad and not isinstance(parameter, FakeTensor) for parameter in model.parameters()
        ):
            return
        if not self.recorder.is_used:
            self._note_host_only()
        copies: dict[int, Tensor] = {}
        for module in model.modules():
            self._place_parameters(module._parameters.values())
            for name, buffer in module._buffers.items():
                if buffer is not None and not isinstance(buffer, FakeTensor):
                    if id(buffer) not in copies:
                        copies[id(buffer)] = self.recorder.to_device(buffer, StorageKind.BUFFER)
                    module._buffers[name] = copies[id(buffer)]
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()

    def place_optimizer(self, optimizer: Optimizer) -> None:
        """Move parameters to the device that belong to no module; this step has run on the host."""
        if not self.recorder.is_used:
            self._note_host_only()
        for group in optimizer.param_groups:
            self._place_parameters(group["params"])

    def _note_host_only(self) -> None:
        self.functions.is_host_only = True
        if isinstance(self.recorder.device, CudaDevice):
            self.recorder.assumptions.append(_HOST_ONLY)

    def _place_parameters(self, parameters: Any) -> None:
        for parameter in parameters:
            if parameter is not None and not isinstance(parameter, FakeTensor):
                copy = self.recorder.to_device(parameter.detach(), StorageKind.PARAMETER)
                self.recorder.replace(parameter, nn.Parameter(copy, parameter.requires_grad))

    def _apply(self, module: nn.Module, fn: Any, *, recurse: bool) -> None:
        """Convert the tensors of a module, as `nn.Module._apply` does; torch would build new parameters here."""
        for child in module.children() if recurse else ():
            child._apply(fn)
        for parameter in module._parameters.values():
            if parameter is None:
                continue
            with torch.no_grad():
                converted = fn(parameter)
                gradient = None if parameter.grad is None else fn(parameter.grad)
            if converted is not parameter:
                self.recorder.label(converted, StorageKind.PARAMETER)
                self.recorder.replace(parameter, nn.Parameter(converted, parameter.requires_grad))
                parameter.grad = gradient
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = converted = fn(buffer)
                self.recorder.label(converted, StorageKind.BUFFER)

    def _flatten(self, module: nn.RNNBase) -> None:
        """Put all weights of a recurrent layer into one tensor, as torch does on a GPU."""
        weights = [weight for weight in module._flat_weights if weight is not None]
        if not all(isinstance(weight, FakeTensor) for weight in weights):
            return
        if len({weight.untyped_storage()._cdata for weight in weights}) <= 1:
            return
        with torch.no_grad():
            flat = weights[0].new_empty(sum(weight.numel() for weight in weights))
            self.recorder.label(flat, StorageKind.PARAMETER)
            parts = flat.split([weight.numel() for weight in weights])
            for weight, part in zip(weights, parts, strict=True):
                self.recorder.replace(weight, nn.Parameter(part.view(weight.shape), weight.requires_grad))
