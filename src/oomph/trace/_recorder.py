"""Records the birth and death of every storage while operations run on fake tensors."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ._data import Taken, answer_for
from ._device import Device, Host
from ._events import OpCost, Phase, Storage, StorageKind, Trace
from ._host import HOST_RULES
from ._sums import merge
from ._temporaries import BLAS, RULES, Drop, Result, Step
from ._work import work_of

# Operations whose result autograd writes into an argument, but not of fake tensors: which nodes do so by themselves.
_IN_PLACE = {
    "aten.add.Tensor": frozenset[str](),
    "aten.index_put.default": frozenset({"IndexBackward0"}),
    "aten.sub.Tensor": frozenset({"BinaryCrossEntropyWithLogitsBackward0"}),
    "aten.mul.Tensor": frozenset({"BinaryCrossEntropyWithLogitsBackward0"}),
}


@dataclass
class _Place:
    """Where in training we are."""

    phase: Phase = Phase.BUILD
    step: int = 0


class Recorder(TorchDispatchMode):
    """A dispatch mode that turns operations into events."""

    def __init__(self, device: Device | Host, taken: Taken) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device, self.taken = device, taken
        self.assumptions: list[str] = []
        self._storages: list[Storage] = []
        self._events: list[int] = []
        self._marks: list[tuple[int, int, Phase]] = []
        self._alive: dict[int, int] = {}
        self._watched: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._place = _Place()
        self._modules: list[str] = []
        self._sequence: tuple[list[int], list[str]] = ([], [])
        self._recording = False
        self._trained: int | None = None
        self._blas: set[str] = set()
        self._work: list[OpCost] = []
        self._node: dict[int, int] = {}  # living storage to the node of the backward pass that made it
        self._sums: dict[int, tuple[int, ...]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        answer = answer_for(func, args)
        if answer is None:
            out = func(*args, **(kwargs or {}))
        else:
            self.assumptions.append(answer[1])
            out = answer[0](func, args, kwargs or {}, self.taken)
        if self._recording:
            self._record(str(func), args, out)
        return out

    @contextmanager
    def phase(self, phase: Phase, step: int) -> Iterator[None]:
        """Record what happens inside as part of a phase of a step."""
        self._place = _Place(phase, step)
        self._marks.append((len(self._events), step, phase))
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    def end_training(self) -> None:
        """What comes now is no training step any more."""
        self._trained = len(self._events)

    def begin_step(self) -> None:
        """Forget the work of earlier steps: the last one counts."""
        self._work.clear()

    def adopt(self, tensor: Tensor, kind: StorageKind, name: str = "") -> None:
        """Count a tensor that was made outside of the recording as born now."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._alive and storage.nbytes():
            self._birth(storage, Storage(storage.nbytes(), kind, "", name, self._place.phase, self._place.step))

    def label(self, tensor: Tensor, kind: StorageKind, name: str = "") -> None:
        """Say what a living tensor is for."""
        index = self._alive.get(tensor.untyped_storage()._cdata)
        if index is not None:
            known = self._storages[index]
            self._storages[index] = replace(known, kind=kind, module=name or known.module)

    def enter_module(self, path: str) -> None:
        """A module's forward begins."""
        self._modules.append(path)

    def leave_module(self) -> None:
        """A module's forward ends."""
        self._modules.pop()

    def trace(self) -> Trace:
        """Everything recorded so far."""
        merged = merge(self._events, self._sums)
        for index, host in merged.hosts.items():
            if self._storages[index].kind is StorageKind.GRADIENT:
                self._storages[host] = replace(self._storages[index], op=self._storages[host].op)
        trained = len(self._events) if self._trained is None else self._trained
        self._events = list(merged.events)
        self._marks = [(merged.places[place], step, phase) for place, step, phase in self._marks]
        self._sums.clear()
        return Trace(
            storages=tuple(self._classified()),
            events=merged.events,
            marks=tuple(self._marks),
            trained=merged.places[trained],
            work=tuple(self._work),
            assumptions=tuple(dict.fromkeys(self.assumptions)),
        )

    def _record(self, op: str, args: tuple[Any, ...], out: Any) -> None:
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        module = self._module()
        if self._trained is None:
            self._work.extend(work_of(op, args, outs))
        steps = self._steps(op, args, outs)
        if steps is None:
            self._plain(op, args, out, module)
            return
        held: list[int] = []
        for step in steps:
            if isinstance(step, Result):
                self._result(outs[step.index], op, module, step.size)
            elif isinstance(step, Drop):
                self._events.extend(-index - 1 for index in held[: step.count])
                del held[: step.count]
            elif step.size:
                index = self._take(step.size, op, module, workspace=step.workspace, optional=step.optional)
                if step.hold:
                    held.append(index)
                else:
                    self._events.append(-index - 1)
        self._events.extend(-index - 1 for index in held)

    def _plain(self, op: str, args: tuple[Any, ...], out: Any, module: str) -> None:
        """An operation without a rule: its results, and what it has in common with others."""
        for tensor in tree_leaves(out):
            self._result(tensor, op, module)
        if op in _IN_PLACE and self._place.phase is Phase.BACKWARD and not torch.is_grad_enabled():
            self._reuse(op, out, args)
        if op in BLAS and isinstance(self.device, Device):
            self._multiply(self.device, op, module)

    def _steps(self, op: str, args: tuple[Any, ...], outs: tuple[Any, ...]) -> Iterator[Step] | None:
        """How memory comes and goes within an operation, where there is a rule for it."""
        if isinstance(self.device, Device):
            rule = RULES.get(op)
            return None if rule is None else rule(args, outs, self.device)
        own = HOST_RULES.get(op)
        return None if own is None else own(args, outs)

    def _multiply(self, device: Device, op: str, module: str) -> None:
        """The workspaces of cuBLAS: those of the main thread's handle and of the backward thread's, kept for good."""
        thread = "backward" if self._place.phase is Phase.BACKWARD else "main"
        if thread not in self._blas:
            self._blas.add(thread)
            self._take(device.blas_workspace, op, module)
        if op == "aten.addmm.default" and f"{thread}, bias" not in self._blas:
            self._blas.add(f"{thread}, bias")
            self._take(device.blas_light_workspace, op, module)

    def _result(self, tensor: object, op: str, module: str, size: int = 0) -> None:
        if not isinstance(tensor, Tensor):
            return
        storage = tensor.untyped_storage()
        if storage._cdata in self._alive or not storage.nbytes():
            return
        place, size = self._place, size or storage.nbytes()
        self._birth(storage, Storage(size, StorageKind.TEMPORARY, op, module, place.phase, place.step))

    def _reuse(self, op: str, out: Tensor, args: tuple[Any, ...]) -> None:
        """Note a result that autograd writes into an argument, if it isn't a fake one."""
        node: Any = torch._C._current_autograd_node()
        if node is None:
            return
        like = [arg for arg in args if isinstance(arg, Tensor) and _alike(arg, out)]
        total, *found = (self._alive.get(tensor.untyped_storage()._cdata) for tensor in (out, *like))
        indices = [index for index in found if index is not None]
        if total is None or not indices:
            return
        # A sum of gradients that meet has a first addend from before the node that has just run.
        if op == "aten.add.Tensor" and self._node.get(indices[0]) != node._sequence_nr():
            self._sums[total] = tuple(indices)
        elif node.name() in _IN_PLACE[op]:
            self._sums[total] = (indices[0],)

    def _take(self, size: int, op: str, module: str, *, workspace: bool = True, optional: bool = False) -> int:
        kind = StorageKind.WORKSPACE if workspace else StorageKind.TEMPORARY
        self._storages.append(Storage(size, kind, op, module, self._place.phase, self._place.step, optional))
        self._events.append(len(self._storages))
        return len(self._storages) - 1

    def _birth(self, storage: torch.UntypedStorage, known: Storage) -> None:
        index, key = len(self._storages), storage._cdata
        self._storages.append(known)
        self._events.append(index + 1)
        self._alive[key] = index
        node = torch._C._current_autograd_node() if self._place.phase is Phase.BACKWARD else None
        if node is not None:
            self._node[index] = node._sequence_nr()

        def died(_: object) -> None:
            self._events.append(-index - 1)
            self._watched.pop(index, None)
            if self._alive.get(key) == index:
                del self._alive[key]

        self._watched[index] = weakref.ref(storage, died)

    def _module(self) -> str:
        """The module that an operation belongs to; in the backward pass that of the operation it differentiates."""
        starts, names = self._sequence
        node = torch._C._current_autograd_node() if self._place.phase is Phase.BACKWARD else None
        if node is not None:
            place = bisect_right(starts, node._sequence_nr()) - 1
            return names[place] if 0 <= place < len(names) else ""
        name = self._modules[-1] if self._modules else ""
        if self._place.phase is Phase.FORWARD:
            number = torch._C._autograd._get_sequence_nr() - 1
            if not starts or starts[-1] < number:
                starts.append(number)
                names.append(name)
        return name

    def _classified(self) -> Iterator[Storage]:
        """Tell activations that wait for the backward pass from what was only passing through."""
        death: dict[int, int] = {-event - 1: place for place, event in enumerate(self._events) if event < 0}
        starts = [place for place, _, _ in self._marks]
        for index, storage in enumerate(self._storages):
            if storage.kind is StorageKind.TEMPORARY and storage.phase is Phase.FORWARD and index in death:
                mark = self._marks[max(bisect_right(starts, death[index]) - 1, 0)]
                if mark[2] is not Phase.FORWARD:
                    yield replace(storage, kind=StorageKind.ACTIVATION)
                    continue
            yield storage


def _alike(tensor: Tensor, other: Tensor) -> bool:
    """Whether a tensor could hold another's elements: it fills its stretch of memory, and fits."""
    size = 1
    for stride, count in sorted(pair for pair in zip(tensor.stride(), tensor.shape, strict=True) if pair[1] > 1):
        if stride != size:
            return False
        size *= count
    return tensor.shape == other.shape and tensor.dtype == other.dtype


@contextmanager
def watching(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Tell the recorder which module is running."""
    paths = {id(module): path for path, module in model.named_modules()}

    def before(module: nn.Module, _: Any) -> None:
        recorder.enter_module(paths.get(id(module), type(module).__name__))

    def after(module: nn.Module, inputs: Any, output: Any) -> None:
        del module, inputs, output
        recorder.leave_module()

    hooks = [module.register_forward_pre_hook(before) for module in model.modules()]
    hooks += [module.register_forward_hook(after, always_call=True) for module in model.modules()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
