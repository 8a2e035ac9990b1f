"""Which module runs, what it was called with and what it returned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ._allocation_recorder import AllocationRecorder
from ._trace import ModuleCall


@dataclass(frozen=True)
class _Entry:
    """A module whose forward pass has begun."""

    path: str
    inputs: tuple[Tensor, ...]
    versions: tuple[int, ...]


@contextmanager
def report_modules(model: nn.Module, recorder: AllocationRecorder) -> Iterator[None]:
    """Report the running module to the recorder through forward hooks."""
    paths = {id(module): path for path, module in model.named_modules()}
    entries: list[_Entry] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        path = paths.get(id(module), type(module).__name__)
        inputs = _tensors_in((args, kwargs))
        entries.append(_Entry(path, inputs, tuple(tensor._version for tensor in inputs)))
        recorder.enter_module(path)

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        del module, args, kwargs
        recorder.leave_module()
        entry = entries.pop()
        written = any(tensor._version != before for tensor, before in zip(entry.inputs, entry.versions, strict=True))
        recorder.add_call(
            ModuleCall(entry.path, recorder.indices_of(entry.inputs), recorder.indices_of(_tensors_in(output)), written)
        )

    hooks = [module.register_forward_pre_hook(before, with_kwargs=True) for module in model.modules()]
    hooks += [module.register_forward_hook(after, with_kwargs=True, always_call=True) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _tensors_in(value: Any) -> tuple[Tensor, ...]:
    return tuple(leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))
