"""The modules, backward passes and optimizer steps of a live program, as phases of its trace."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from .._module_calls import RunningCall
from .._trace import Phase, StorageKind, Trace
from ._recorder import LiveRecorder

_PATIENCE = 10  # steps of one optimizer, after which another that never steps isn't waited for


class StepTracker:
    """Follows a program through its training steps.

    Args:
        recorder: the recorder of the program.
        steps: how many steps of every optimizer to record.
        on_end: called after the last one.
    """

    def __init__(self, recorder: LiveRecorder, steps: int, on_end: Callable[[], None]) -> None:
        self.recorder, self.steps, self.on_end = recorder, steps, on_end
        self.models: list[nn.Module] = []
        self.trained: list[nn.Module] = []
        self.first_pass: Trace | None = None
        self.samples: int | None = None
        self.backward_passes = 0
        self.autocast_dtype: torch.dtype | None = None
        self._waiting: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._counts: dict[Optimizer, int] = {}
        self.has_optimizer = False
        self._has_batches = False
        self._paths: dict[int, str] = {}
        self._parts: set[int] = set()  # modules of the first trained model
        self._depth = 0
        self._phase = ExitStack()
        self._current = Phase.BUILD

    @property
    def is_in_model(self) -> bool:
        """True inside the forward pass of a module."""
        return self._depth > 0

    @property
    def step(self) -> int:
        """The steps that every optimizer has taken."""
        return 0 if self._waiting else min(self._counts.values(), default=0)

    @property
    def optimizers(self) -> tuple[Optimizer, ...]:
        """The optimizers that took a step."""
        return tuple(self._counts)

    @property
    def all_optimizers(self) -> tuple[Optimizer, ...]:
        """All optimizers that the program has built and keeps."""
        return (*self._counts, *self._waiting)

    @property
    def optimizer_steps(self) -> int:
        """The steps of the optimizer that took the most."""
        return max(self._counts.values(), default=0)

    def add_optimizer(self, optimizer: Optimizer) -> None:
        """Wait for the steps of an optimizer that the program has built."""
        self._waiting.add(optimizer)
        self.has_optimizer = True

    def start_batch(self) -> None:
        """Note that the program has loaded a batch; it accumulates gradients if it has differentiated one already."""
        self._has_batches = True
        self._keep_accumulated_pass()

    def starts_training(self, module: nn.Module) -> bool:
        """Return True if the program is about to train a model for the first time."""
        return (
            torch.is_grad_enabled()
            and self._current is not Phase.BACKWARD  # where checkpointed parts of a model run again
            and module not in self.trained
            and id(module) not in self._parts
            and _is_trainable(module)
        )

    def add_trained(self, model: nn.Module) -> None:
        """Add a model that the program trains; the paths of the first one are those of its own modules."""
        if id(model) not in self._paths:
            self._add_model(model)
        if not self.trained:
            self._paths.update({id(part): path for path, part in model.named_modules()})
            self._parts = {id(part) for part in model.modules()}
            self.recorder.name_modules(model.named_modules())
        self.trained.append(model)
        self._label_tensors(model)

    @contextmanager
    def module(self, module: nn.Module, args: Any, kwargs: Any) -> Iterator[RunningCall | None]:
        """Run a module's forward pass; the call is that of a module which could be checkpointed."""
        if not self._depth:
            self._enter_model(module, args, kwargs)
        if torch.is_autocast_enabled("cpu") and torch.is_grad_enabled():
            self.autocast_dtype = torch.get_autocast_dtype("cpu")
        self._depth += 1
        path = self._paths.get(id(module), type(module).__name__)
        self.recorder.enter_module(path)
        is_plain = id(module) in self._parts and "forward" not in vars(module)
        try:
            yield RunningCall.of(path, (args, kwargs)) if is_plain and torch.is_grad_enabled() else None
        finally:
            self.recorder.leave_module()
            self._depth -= 1

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Run a backward pass."""
        self.backward_passes += 1
        before = self._current
        self.enter(Phase.BACKWARD)
        try:
            yield
        finally:
            for model in self.models:
                for name, parameter in model.named_parameters():
                    if parameter.grad is not None:
                        self.recorder.label(parameter.grad, StorageKind.GRADIENT, self._name(model, name))
            self.enter(before if before is not Phase.BUILD else Phase.FORWARD)

    def before_step(self) -> None:
        """Enter the optimizer's phase."""
        self.enter(Phase.OPTIMIZER)

    def after_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Leave the optimizer's phase, and end after the last step."""
        for state in optimizer.state.values():
            for value in tree_leaves(dict(state) if isinstance(state, dict) else state):
                if isinstance(value, FakeTensor):
                    self.recorder.label(value, StorageKind.STATE)
        before = self.step
        self._waiting.discard(optimizer)
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        is_last = self.step >= self.steps or (self.step == 0 and self._counts[optimizer] >= _PATIENCE)
        if self.first_pass is None and (is_last or self.step > before):
            self.first_pass = self.recorder.trace()
        if is_last:
            self.on_end()
            return
        if self.step > before:
            self.recorder.start_step()
        self.enter(Phase.FORWARD)

    def enter(self, phase: Phase) -> None:
        """Record what follows as part of a phase."""
        self._phase.close()
        self._phase.enter_context(self.recorder.phase(phase, self.step))
        self._current = phase

    def _enter_model(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Name the parts of a module that the program calls, and note what it is called with."""
        if id(module) not in self._paths:
            self._add_model(module)
        if not self._has_batches and module in self.trained:
            self._keep_accumulated_pass()
        if not torch.is_grad_enabled() or module not in self.models:
            return
        if self._current is Phase.BUILD:
            self.recorder.start_step()
            self.enter(Phase.FORWARD)
        if self.samples is None:
            shapes = [leaf.shape for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.dim()]
            self.samples = shapes[0][0] if shapes else None

    def _keep_accumulated_pass(self) -> None:
        """Keep the trace of the first pass if the program begins another one before its first update."""
        if self.first_pass is None and self.backward_passes and not self._counts:
            self.first_pass = self.recorder.trace()

    def _add_model(self, module: nn.Module) -> None:
        is_model = any(True for _ in module.parameters())
        has_other = any(_is_trainable(model) for model in self.models)
        prefix = type(module).__name__ if is_model and (has_other or not _is_trainable(module)) else ""
        for path, part in module.named_modules():
            self._paths.setdefault(id(part), ".".join(filter(None, (prefix, path))))
        if is_model:
            self.models.append(module)
            self.recorder.name_modules((self._paths[id(part)], part) for part in module.modules())
            self._label_tensors(module)

    def _label_tensors(self, model: nn.Module) -> None:
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            is_parameter = isinstance(tensor, nn.Parameter)
            kind = StorageKind.PARAMETER if is_parameter else StorageKind.BUFFER
            self.recorder.label(tensor, kind, self._name(model, name))

    def _name(self, model: nn.Module, name: str) -> str:
        return ".".join(filter(None, (self._paths[id(model)], name)))


def _is_trainable(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())
