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
class RunningCall:
    """A module whose forward pass has begun: its path, its inputs, and how often they had been written to."""

    path: str
    inputs: tuple[Tensor, ...]
    versions: tuple[int, ...]

    @classmethod
    def of(cls, path: str, args: Any) -> RunningCall:
        """Return the call of the module at a path."""
        inputs = _tensors_in(args)
        return cls(path, inputs, tuple(tensor._version for tensor in inputs))

    def end(self, output: Any, recorder: AllocationRecorder) -> None:
        """Report the call to the recorder."""
        written = any(tensor._version != before for tensor, before in zip(self.inputs, self.versions, strict=True))
        recorder.add_call(
            ModuleCall(self.path, recorder.indices_of(self.inputs), recorder.indices_of(_tensors_in(output)), written)
        )


@contextmanager
def report_modules(model: nn.Module, recorder: AllocationRecorder) -> Iterator[None]:
    """Report the running module to the recorder through forward hooks."""
    paths = {id(module): path for path, module in model.named_modules()}
    calls: list[RunningCall] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        path = paths.get(id(module), type(module).__name__)
        calls.append(RunningCall.of(path, (args, kwargs)))
        recorder.enter_module(path)

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        del module, args, kwargs
        recorder.leave_module()
        calls.pop().end(output, recorder)

    hooks = [module.register_forward_pre_hook(before, with_kwargs=True) for module in model.modules()]
    hooks += [module.register_forward_hook(after, with_kwargs=True, always_call=True) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _tensors_in(value: Any) -> tuple[Tensor, ...]:
    return tuple(leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))
