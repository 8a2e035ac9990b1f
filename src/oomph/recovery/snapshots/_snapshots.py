"""Snapshots of the state that a retry restores.

Each snapshot covers one kind of state. `capture()` saves it and returns the function that restores it. That function is
idempotent and can be called again after it failed half-way: memory may run out during a restore, too.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.optimizer import _global_optimizer_pre_hooks

from ...batch import tensors_in
from ...units import MIB
from .._caught_oom import catch_oom

Restore = Callable[[], object]

_CPU = torch.device("cpu")
_PLAIN_TYPES = (Tensor, nn.Parameter)  # subclasses may not support multi-tensor functions
MAX_KEPT_BYTES = 4 * MIB  # larger copies of buffers are freed after each step
MODULE_SCANS = 2  # steps in which modules are searched for buffers: the first forward may register some


class Snapshot(Protocol):
    """State that can be captured and restored."""

    def capture(self) -> Restore:
        """Save the current state and return the function that restores it."""
        ...


class TensorCopies:
    """Copies of tensors, reused from one capture to the next while tensors, shapes and dtypes stay the same."""

    def __init__(self) -> None:
        self._tensors: Sequence[Tensor] = ()
        self._kinds: list[tuple[torch.Size, torch.dtype]] = []
        self._copies: list[Tensor] = []
        self._groups: list[tuple[list[Tensor], list[Tensor]]] = []  # copies and tensors of one device and dtype
        self.nbytes = 0  # of the copies

    def capture(self, tensors: Sequence[Tensor], *, on_host: bool = False) -> Restore:
        """Copy the tensors: on their devices, or to the host if requested or where a device has no free memory."""
        if on_host or not self._can_reuse(tensors):
            self._allocate(tensors, on_host=on_host)
        with torch.no_grad():
            for copies, sources in self._groups:
                if len(copies) > 1:
                    torch._foreach_copy_(copies, sources)
                else:
                    copies[0].copy_(sources[0])
        return self._restore

    def _can_reuse(self, tensors: Sequence[Tensor]) -> bool:
        if len(tensors) != len(self._copies) or not all(map(is_, tensors, self._tensors)):
            return False
        return [(tensor.shape, tensor.dtype) for tensor in tensors] == self._kinds

    def _allocate(self, tensors: Sequence[Tensor], *, on_host: bool) -> None:
        self._copies, self._groups, self._kinds = [], [], []
        if on_host or catch_oom(lambda: self._allocate_on(tensors, None)) is not None:
            self._allocate_on(tensors, _CPU)
        groups: dict[tuple[Any, ...], tuple[list[Tensor], list[Tensor]]] = {}
        for tensor, duplicate in zip(map(local_shard, tensors), self._copies, strict=True):
            is_plain = type(tensor) in _PLAIN_TYPES
            key = (tensor.device, tensor.dtype, tensor.layout, duplicate.device) if is_plain else (id(duplicate),)
            copies, sources = groups.setdefault(key, ([], []))
            copies.append(duplicate)
            sources.append(tensor)
        self._groups = list(groups.values())
        # Last, so that an interrupted allocation is not reused.
        self._tensors, self._kinds = tensors, [(tensor.shape, tensor.dtype) for tensor in tensors]
        self.nbytes = sum(duplicate.numel() * duplicate.element_size() for duplicate in self._copies)

    def _allocate_on(self, tensors: Sequence[Tensor], device: torch.device | None) -> None:
        self._copies = [_empty_copy(tensor, device or tensor.device) for tensor in map(local_shard, tensors)]

    def _restore(self) -> None:
        with torch.no_grad():
            for tensor, duplicate in zip(map(local_shard, self._tensors), self._copies, strict=True):
                _write(tensor, duplicate)


def local_shard(tensor: Tensor) -> Tensor:
    """Return this rank's part of a DTensor, such as a parameter under FSDP2; any other tensor as it is."""
    if type(tensor) in _PLAIN_TYPES or not hasattr(tensor, "to_local"):
        return tensor
    with torch.no_grad():  # otherwise it would be a view with a gradient
        local: Tensor = tensor.to_local()
    return local


def _empty_copy(tensor: Tensor, device: torch.device) -> Tensor:
    if tensor.layout is torch.strided:
        return torch.empty_like(tensor.detach(), device=device)
    return tensor.detach().clone().to(device)


def _write(tensor: Tensor, values: Tensor) -> None:
    """Copy values into a tensor of any layout, including one that was resized or that is expanded."""
    if tensor.layout is torch.strided:
        if tensor.shape != values.shape:
            tensor.resize_(values.shape)
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            if size > 1 and stride == 0:  # expanded: all entries are the same memory
                tensor, values = tensor.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    tensor.copy_(values)


class RngSnapshot:
    """Random states of torch, a CUDA device, Python and NumPy."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None

    def capture(self) -> Restore:
        """Save the random states."""
        states = rng_states(self._cuda)
        return lambda: set_rng_states(states, self._cuda)


def rng_states(cuda: torch.device | None) -> dict[str, Any]:
    """Return every random state that a training step may use."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if cuda is not None:
        states["cuda"] = torch.cuda.get_rng_state(cuda)  # kept on the host, so nothing waits for the GPU
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state(legacy=False)
    return states


def set_rng_states(states: Mapping[str, Any], cuda: torch.device | None) -> None:
    """Set the random states that `rng_states` returned."""
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if cuda is not None and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], cuda)
    if "numpy" in states and "numpy" in sys.modules:
        sys.modules["numpy"].random.set_state(states["numpy"])


class BufferSnapshot:
    """The buffers of modules: BatchNorm statistics and anything else that a forward changes."""

    def __init__(self, *modules: nn.Module) -> None:
        self._modules, self._scans = modules, MODULE_SCANS
        self._slots: list[tuple[dict[str, Tensor | None], str]] = []  # the table and name of each buffer
        self._copies = TensorCopies()

    def capture(self) -> Restore:
        """Copy all buffers: CUDA kernels update BatchNorm statistics without counting a version."""
        is_complete = self._scans > 0
        if is_complete:
            self._scans -= 1
            self._slots = _buffer_slots(self._modules)
        slots, buffers = self._slots, [table.get(name) for table, name in self._slots]
        restore_values = self._copies.capture([buffer for buffer in buffers if buffer is not None])
        if self._copies.nbytes > MAX_KEPT_BYTES:
            self._copies = TensorCopies()

        def restore() -> None:
            self._scans = MODULE_SCANS  # the failed forward may not have registered its buffers yet
            restore_values()
            for (table, name), buffer in zip(slots, buffers, strict=True):
                table[name] = buffer
            if is_complete:  # others were registered since
                known = {(id(table), name) for table, name in slots}
                for table, name in _buffer_slots(self._modules):
                    if (id(table), name) not in known:
                        del table[name]

        return restore


def _buffer_slots(modules: Iterable[nn.Module]) -> list[tuple[dict[str, Tensor | None], str]]:
    slots: list[tuple[dict[str, Tensor | None], str]] = []
    for owner in dict.fromkeys(owner for module in modules for owner in module.modules()):
        table: Any = owner._buffers  # noqa: SLF001  rebinding needs the table itself
        if not isinstance(table, dict):  # that of a ScriptModule
            table = dict(owner.named_buffers(recurse=False))
        slots += [(table, name) for name in table]
    return slots


class GradStash:
    """The gradients that earlier batches accumulated.

    A step takes them off the parameters, writes fresh ones and merges both at the end: nothing is copied.
    """

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self._model, self._optimizers = model, optimizers
        self.parameters: list[nn.Parameter] = []  # frozen ones too: they may be unfrozen later
        self._known: set[int] = set()
        self.stashed: dict[int, Tensor] = {}  # by the parameter's position

    def capture(self) -> Restore:
        """Remember the gradients."""
        if not all(self._known.issuperset(map(id, group["params"])) for group in _groups(self._optimizers)):
            self.parameters = all_parameters([self._model], self._optimizers)
            self._known = {id(param) for param in self.parameters}
        parameters = self.parameters
        stashed = {index: grad for index, param in enumerate(parameters) if (grad := param.grad) is not None}
        self.stashed = stashed

        def restore() -> None:
            for index, param in enumerate(parameters):
                param.grad = stashed.get(index)

        return restore

    def take_off(self) -> None:
        """Set the stashed gradients of the parameters to None."""
        for index in self.stashed:
            self.parameters[index].grad = None

    def clear(self) -> None:
        """Set all gradients to None; `zero_grad` would enter the profiler, which can run out of memory too."""
        for param in self.parameters:
            param.grad = None

    def release(self) -> None:
        """Drop the stashed gradients."""
        self.stashed = {}


class GradSnapshot:
    """Copies of gradients, for work that adds to them."""

    def __init__(self, parameters: Iterable[nn.Parameter], *, on_host: bool = False) -> None:
        self._parameters, self._on_host = list(parameters), on_host
        self.nbytes = 0  # of the copies

    def capture(self) -> Restore:
        """Copy the gradients."""
        grads, copies = [param.grad for param in self._parameters], TensorCopies()
        restore_values = copies.capture([grad for grad in grads if grad is not None], on_host=self._on_host)
        self.nbytes = copies.nbytes

        def restore() -> None:
            restore_values()
            for param, grad in zip(self._parameters, grads, strict=True):
                param.grad = grad

        return restore


class OptimizerSnapshot:
    """The parameters, state and param-group options of an optimizer: a backup for an update that fails half-way.

    Args:
        optimizer: the optimizer to back up.
        before_update: the gradients are computed already, so that only parameters with a gradient need a backup.
        with_grads: back up the gradients, too.
        on_host: keep the backup on the host.
    """

    def __init__(
        self, optimizer: Optimizer, *, before_update: bool = False, with_grads: bool = False, on_host: bool = False
    ) -> None:
        self._optimizer, self._before_update = optimizer, before_update
        self._with_grads, self._on_host = with_grads, on_host
        self.nbytes = 0  # of the backup

    def capture(self) -> Restore:
        """Copy everything that an update can change."""
        optimizer = self._optimizer
        parameters = optimizer_parameters(optimizer)
        if self._before_update:
            parameters = [param for param in parameters if param.grad is not None]
        grads = GradSnapshot(parameters if self._with_grads else [], on_host=self._on_host)
        restore_grads, restore_options = grads.capture(), ParamGroupSnapshot(optimizer).capture()
        tensors = [*parameters, *tensors_in([list(entry.values()) for entry in optimizer.state.values()])]
        kept = {id(tensor): tensor for tensor in tensors}
        state = [(param, _copy_entry(entry, kept)) for param, entry in optimizer.state.items()]
        restore_counters = CounterSnapshot(optimizer).capture()
        copies = TensorCopies()
        restore_values = copies.capture(tensors, on_host=self._on_host)
        self.nbytes = copies.nbytes + grads.nbytes

        def restore() -> None:
            restore_grads()
            restore_values()
            restore_counters()
            _set_state(optimizer, [(param, _copy_entry(entry, kept)) for param, entry in state])
            restore_options()

        return restore


def _copy_entry(entry: Mapping[str, Any], kept: Mapping[int, object]) -> dict[str, Any]:
    """Copy a parameter's optimizer state; its tensors are restored in place."""
    return {name: value if isinstance(value, Tensor) else deep_copy(value, kept) for name, value in entry.items()}


def _set_state(optimizer: Optimizer, state: list[tuple[Tensor, dict[str, Any]]]) -> None:
    """Set the captured entries and remove later ones, so that a first update is one again."""
    captured = {id(param) for param, _ in state}
    for param in [param for param in optimizer.state if id(param) not in captured]:
        del optimizer.state[param]
    for param, entry in state:
        optimizer.state[param].clear()
        optimizer.state[param].update(entry)


class ParamGroupSnapshot:
    """The param-group options of an optimizer, such as the learning rate, which schedulers change."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._groups = optimizer.param_groups

    def capture(self) -> Restore:
        """Copy the options."""
        options = [
            {name: _clone_tensor(value) for name, value in group.items() if name != "params"} for group in self._groups
        ]

        def restore() -> None:
            for group, saved in zip(self._groups, options, strict=False):
                group.update({name: _clone_tensor(value) for name, value in saved.items()})

        return restore


def _clone_tensor(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def may_write_grads(optimizer: Optimizer) -> bool:
    """Return True unless the optimizer is one of torch's that leave gradients unchanged and has no pre-step hooks."""
    if has_step_hooks(optimizer):
        return True
    if type(optimizer) is SGD:
        return any(group["nesterov"] and not group.get("fused") for group in optimizer.param_groups)
    return type(optimizer) not in {Adam, AdamW}


def has_step_hooks(optimizer: Optimizer) -> bool:
    """Return True if the user registered hooks that run before each step: they may write to weights and gradients."""
    return bool(getattr(optimizer, "_optimizer_step_pre_hooks", None) or _global_optimizer_pre_hooks)


class CounterSnapshot:
    """The attributes of an object that are numbers."""

    def __init__(self, target: object) -> None:
        self._attributes: dict[str, Any] = vars(target)

    def capture(self) -> Restore:
        """Remember the numbers."""
        numbers = {name: value for name, value in self._attributes.items() if isinstance(value, (int, float))}
        return lambda: self._attributes.update(numbers)


def deep_copy(value: Any, kept: Mapping[int, object]) -> Any:
    """Return a deep copy that refers to the kept objects, by id, instead of copying them."""
    is_plain = value is None or isinstance(value, (bool, int, float, str))
    return value if is_plain else copy.deepcopy(value, dict(kept))


def optimizer_parameters(optimizer: Optimizer) -> list[nn.Parameter]:
    """Return the parameters that an optimizer updates."""
    return [param for group in optimizer.param_groups for param in group["params"]]


def all_parameters(modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> list[nn.Parameter]:
    """Return the parameters of modules and optimizers, each once: a loss may have some that only an optimizer holds."""
    parameters = {id(param): param for module in modules for param in module.parameters()}
    parameters.update((id(param), param) for group in _groups(optimizers) for param in group["params"])
    return list(parameters.values())


def _groups(optimizers: Iterable[Optimizer]) -> list[dict[str, Any]]:
    return [group for optimizer in optimizers for group in optimizer.param_groups]
