"""A Job's model, optimizers and batches on fake tensors, which have shapes and lifetimes but no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map

from ..errors import OomphError, UsageError, describe
from ..job import Job
from ._failures import explain, limit
from .fake import AnyDeviceIsCpu, FakeWorld, mark_example

# Errors after which a model is built again on real tensors: our fake ones may be the cause.
_MAY_BE_OURS = (RuntimeError, TypeError, ValueError, AttributeError, AssertionError, NotImplementedError)


def copy_job(job: Job, world: FakeWorld) -> Job:
    """Return the Job with its functions on copies of the live objects that they refer to."""
    functions = {
        field.name: world.copier.copy(value) for field in fields(job) if callable(value := getattr(job, field.name))
    }
    return replace(job, **functions)


def build_model(job: Job, world: FakeWorld) -> nn.Module:
    """Build the Job's model on fake tensors, or on real ones first if it reads values while it is built."""

    def build() -> Any:
        try:
            with world.building():
                return job.model()
        except _MAY_BE_OURS:
            with AnyDeviceIsCpu():
                return job.model()

    model = _call("model", build)
    if not isinstance(model, nn.Module):
        raise UsageError(f"the Job's model returned a value of type {type(model).__name__}", "return an nn.Module")
    _check_modules(model)
    model = _without_real_tensors(model, world)
    return model.train()


def _check_modules(model: nn.Module) -> None:
    for path, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise limit(f"the TorchScript module {path or 'that is the model'}, whose code is not Python")
        if any(is_lazy(tensor) for _, tensor, _ in direct_tensors(module)):
            raise UsageError(
                f"the parameters of {path or 'the model'} ({type(module).__name__}) have no shape yet",
                "run a batch through the model in the Job's function model",
            )


def _without_real_tensors(model: nn.Module, world: FakeWorld) -> nn.Module:
    """Return the model, or its copy on fake tensors if it has a real tensor."""
    tensors = [tensor for module in model.modules() for _, tensor, _ in direct_tensors(module)]
    attributes = [leaf for module in model.modules() for leaf in module.__dict__.values() if isinstance(leaf, Tensor)]
    is_compiled = any(type(module).__name__ == "OptimizedModule" for module in model.modules())
    if not is_compiled and all(world.is_ours(tensor) for tensor in (*tensors, *attributes)):
        return model
    copied = world.copier.copy(model)
    for module in copied.modules():
        for name, tensor, is_parameter in list(direct_tensors(module)):
            (module._parameters if is_parameter else module._buffers)[name] = world.to_fake(tensor)
    return copied  # type: ignore[no-any-return]


def build_batch(job: Job, count: int, size: Any, world: FakeWorld) -> Any:
    """Build a batch of fake tensors; only small lists of integers, such as lengths, keep their values."""

    def build() -> Any:
        with world.mode:
            return job.batch(count, size)

    batch = tree_map(lambda leaf: world.to_fake(leaf) if isinstance(leaf, Tensor) else leaf, _call("batch", build))
    for leaf in tree_leaves(batch):
        if isinstance(leaf, FakeTensor):
            mark_example(leaf)
    return batch


def build_optimizers(job: Job, model: nn.Module, world: FakeWorld, *, on_gpu: bool = True) -> list[Optimizer]:
    """Build the Job's optimizers, with the multi-tensor kernels that torch uses on CUDA by default."""

    def build() -> Any:
        assert job.optimizer is not None  # noqa: S101  Job.__post_init__ checks it
        return job.optimizer(model)

    built = _call("optimizer", build)
    optimizers = list(built) if isinstance(built, (list, tuple)) else [built]
    for optimizer in optimizers:
        if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "step"):
            raise UsageError(
                f"the Job's optimizer returned a value of type {type(optimizer).__name__}",
                "return an optimizer or a list of optimizers",
            )
    optimizers = [_without_real_params(optimizer, world) for optimizer in optimizers]
    for group in (group for optimizer in optimizers for group in optimizer.param_groups if on_gpu):
        if group.get("foreach", "absent") is None and not group.get("fused"):
            group["foreach"] = not _is_single_tensor(group, optimizers) or None
    return optimizers


def _without_real_params(optimizer: Optimizer, world: FakeWorld) -> Optimizer:
    """Return the optimizer, or its copy on fake tensors if it updates a live model's parameters."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    return optimizer if all(world.is_ours(param) for param in params) else world.copier.copy(optimizer)


def replace_params(optimizers: list[Optimizer], replaced: dict[int, Tensor]) -> None:
    """Let optimizers of a live model update the parameters that took the place of others, by id, in conversions."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["params"] = [replaced.get(id(param), param) for param in group["params"]]
        state = [(replaced.get(id(param), param), value) for param, value in optimizer.state.items()]
        optimizer.state.clear()
        optimizer.state.update((param, _in_dtype_of(param, value)) for param, value in state)


def _in_dtype_of(param: Tensor, state: Any) -> Any:
    """Return a parameter's optimizer state in its dtype, as `load_state_dict` does."""

    def convert(value: Any) -> Any:
        is_like_param = isinstance(value, Tensor) and value.is_floating_point() and value.shape == param.shape
        return value.to(param.dtype) if is_like_param and value.dim() else value

    return {name: convert(value) for name, value in state.items()} if isinstance(state, dict) else state


def _is_single_tensor(group: dict[str, Any], optimizers: list[Optimizer]) -> bool:
    """Return True for groups of optimizers that update one tensor at a time on CUDA too."""
    owner = next(optimizer for optimizer in optimizers if any(group is other for other in optimizer.param_groups))
    return type(owner).__name__ in {"Adafactor", "LBFGS", "SparseAdam"}


def modules_in_order(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield (name prefix, module) in the order in which `model.to(device)` moves the modules."""
    for name, child in model.named_children():
        yield from modules_in_order(child, f"{prefix}{name}.")
    yield prefix, model


def direct_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor, bool]]:
    """Yield (name, tensor, is a parameter) of the parameters and buffers that are not in a submodule."""
    yield from ((name, tensor, True) for name, tensor in module._parameters.items() if tensor is not None)
    yield from ((name, tensor, False) for name, tensor in module._buffers.items() if tensor is not None)


def _call(name: str, function: Callable[[], Any]) -> Any:
    """Call one of the Job's functions; raise UsageError if it fails or exits."""
    try:
        return function()
    except OomphError:
        raise
    except (Exception, SystemExit) as error:
        raise explain(error, f"the Job's {name} raised {describe(error, 300)}", f"fix the function {name}") from error
