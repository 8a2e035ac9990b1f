"""A Job's model, optimizer and batches as fake tensors: shapes and lifetimes without memory."""

from __future__ import annotations

from collections.abc import Iterator
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

from ..errors import UsageError
from ..job import Job

_NEEDS_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)


def build_model(job: Job, mode: FakeTensorMode) -> nn.Module:
    """Build the Job's model out of fake tensors; for real, and then turned into fake ones, where it insists."""
    try:
        with mode:
            model = job.model()
    except _NEEDS_DATA:
        model = _call("model", job.model)
    except Exception as error:
        raise _raised("model", error) from error
    if not isinstance(model, nn.Module):
        raise UsageError(f"the Job's model returned a {type(model).__name__}", "return an nn.Module")
    _to_fake(model, mode)
    return model.train()


def build_batch(job: Job, count: int, size: Any, mode: FakeTensorMode) -> Any:
    """Make a batch out of fake tensors."""
    try:
        with mode:
            return job.batch(count, size)
    except Exception as error:
        raise _raised("batch", error) from error


def build_optimizer(job: Job, model: nn.Module, *, on_gpu: bool = True) -> torch.optim.Optimizer:
    """Make the Job's optimizer, with the multi-tensor kernels that CUDA takes where nothing else was asked for."""
    assert job.optimizer is not None  # noqa: S101  a Job has one
    try:
        optimizer = job.optimizer(model)
    except Exception as error:
        raise _raised("optimizer", error) from error
    for group in optimizer.param_groups if on_gpu else ():
        if group.get("foreach", "absent") is None and not group.get("fused") and not _single(optimizer):
            group["foreach"] = True
    return optimizer


def _single(optimizer: torch.optim.Optimizer) -> bool:
    """Optimizers that go one tensor at a time on CUDA too."""
    return type(optimizer).__name__ in {"Adafactor", "LBFGS", "SparseAdam"}


def in_order(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Modules in the order in which `model.to(device)` moves them: prefix of their names, module."""
    for name, child in model.named_children():
        yield from in_order(child, f"{prefix}{name}.")
    yield prefix, model


def own_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """A module's own parameters and buffers: name, tensor, is a parameter."""
    yield from ((name, tensor, True) for name, tensor in module._parameters.items() if tensor is not None)
    yield from ((name, tensor, False) for name, tensor in module._buffers.items() if tensor is not None)


def _to_fake(model: nn.Module, mode: FakeTensorMode) -> None:
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
    """A tensor as a fake one of this trace: from a real one, or from a copy that took its mode along (deepcopy)."""
    if not isinstance(tensor, FakeTensor):
        return mode.from_tensor(tensor.detach())
    if tensor.fake_mode is mode:
        return tensor.detach()
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _call(name: str, function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        raise _raised(name, error) from error


def _raised(name: str, error: Exception) -> UsageError:
    words = " ".join(str(error).split()) or "no message"
    return UsageError(f"the Job's {name} raised {type(error).__name__}: {words[:300]}", f"mend the function {name}")
