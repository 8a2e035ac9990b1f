"""A Job's model, optimizer and batches on fake tensors, which have shapes and lifetimes but no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from ..errors import UsageError, describe
from ..job import Job

_NEEDS_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)


def build_model(job: Job, mode: FakeTensorMode) -> nn.Module:
    """Build the Job's model on fake tensors, or on real ones first if it reads values while it is built."""

    def build() -> Any:
        try:
            with mode:
                return job.model()
        except _NEEDS_DATA:
            return job.model()

    model = _call("model", build)
    if not isinstance(model, nn.Module):
        raise UsageError(f"the Job's model returned a value of type {type(model).__name__}", "return an nn.Module")
    _make_fake(model, mode)
    return model.train()


def build_batch(job: Job, count: int, size: Any, mode: FakeTensorMode) -> Any:
    """Build a batch of fake tensors."""

    def build() -> Any:
        with mode:
            return job.batch(count, size)

    return _call("batch", build)


def build_optimizer(job: Job, model: nn.Module, *, on_gpu: bool = True) -> torch.optim.Optimizer:
    """Build the Job's optimizer, with the multi-tensor kernels that torch uses on CUDA by default."""

    def build() -> torch.optim.Optimizer:
        assert job.optimizer is not None  # noqa: S101  Job.__post_init__ checks it
        return job.optimizer(model)

    optimizer = _call("optimizer", build)
    for group in optimizer.param_groups if on_gpu else ():
        if group.get("foreach", "absent") is None and not group.get("fused") and not _is_single_tensor(optimizer):
            group["foreach"] = True
    return optimizer  # type: ignore[no-any-return]


def _is_single_tensor(optimizer: torch.optim.Optimizer) -> bool:
    """Return True for optimizers that update one tensor at a time on CUDA too."""
    return type(optimizer).__name__ in {"Adafactor", "LBFGS", "SparseAdam"}


def modules_in_order(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield (name prefix, module) in the order in which `model.to(device)` moves the modules."""
    for name, child in model.named_children():
        yield from modules_in_order(child, f"{prefix}{name}.")
    yield prefix, model


def direct_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield (name, tensor, is a parameter) of the parameters and buffers that are not in a submodule."""
    yield from ((name, tensor, True) for name, tensor in module._parameters.items() if tensor is not None)
    yield from ((name, tensor, False) for name, tensor in module._buffers.items() if tensor is not None)


def _make_fake(model: nn.Module, mode: FakeTensorMode) -> None:
    """Replace the model's parameters and buffers by fake tensors; tied ones stay tied."""
    seen: dict[int, Tensor] = {}
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                fake = seen.setdefault(id(parameter), nn.Parameter(_fake(parameter, mode), parameter.requires_grad))
                module._parameters[name] = fake  # type: ignore[assignment]
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = seen.setdefault(id(buffer), _fake(buffer, mode))


def _fake(tensor: Tensor, mode: FakeTensorMode) -> Tensor:
    """Return a fake tensor of this mode; a deepcopy of a fake tensor comes with a copy of its mode."""
    if not isinstance(tensor, FakeTensor):
        return mode.from_tensor(tensor.detach())
    if tensor.fake_mode is mode:
        return tensor.detach()
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _call(name: str, function: Callable[[], Any]) -> Any:
    """Call one of the Job's functions; raise UsageError if it fails or exits."""
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise UsageError(f"the Job's {name} raised {describe(error, 300)}", f"fix the function {name}") from error
