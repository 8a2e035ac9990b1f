"""Recorder of every allocation and free while operations run on fake tensors."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from ._device import CpuDevice, CudaDevice
from ._inplace_sums import merge_sums
from ._op_cost import op_cost
from ._trace import TO_HOST, CodeLine, Guess, ModuleCall, OpCost, Phase, Storage, StorageKind, Trace
from .fake import ValueTracker, running_stack
from .kernels import CPU_RULES, CUBLAS_OPS, CUDA_RULES, AllocateResult, FreeTemporaries, RuleStep

# Operations whose result autograd writes into an argument, though not for fake tensors, and the autograd nodes that
# do so.
_IN_PLACE = {
    "aten.add.Tensor": frozenset[str](),
    "aten.index_put.default": frozenset({"IndexBackward0"}),
    "aten.sub.Tensor": frozenset({"BinaryCrossEntropyWithLogitsBackward0"}),
    "aten.mul.Tensor": frozenset({"BinaryCrossEntropyWithLogitsBackward0"}),
}
_CLASS_LOSSES = frozenset({"aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default"})
_MAX_LINES = 3  # of the user's code that are named for one assumption


class _Moment(NamedTuple):
    """The phase and step that are being recorded."""

    phase: Phase = Phase.BUILD
    step: int = 0


class _Origin(NamedTuple):
    """Where an operation ran, or the one that it differentiates: its module and the lines of the user's code."""

    module: str = ""
    stack: tuple[CodeLine, ...] = ()


class AllocationRecorder(TorchDispatchMode):
    """Dispatch mode that records operations as allocations and frees.

    Args:
        device: the device to record for.
        values: runs the operations.
        stacks: keep the lines of the user's code that made each allocation, which takes longer.
    """

    def __init__(self, device: CudaDevice | CpuDevice, values: ValueTracker, *, stacks: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device, self.values = device, values
        self._keeps_stacks = stacks
        self._stacks: dict[tuple[CodeLine, ...], tuple[CodeLine, ...]] = {}  # each of them once
        self.assumptions: list[str] = []
        self.sharded_type: type | None = None  # DTensor, where there are several ranks
        self._storages: list[Storage] = []
        self._events: list[int] = []
        self._phase_starts: list[tuple[int, int, Phase]] = []
        self._live: dict[int, int] = {}  # address of a torch storage to its index
        self._finalizers: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._now = _Moment()
        self._modules: list[str] = []
        # Autograd sequence numbers in ascending order, and what ran from each number on.
        self._sequence: tuple[list[int], list[_Origin]] = ([], [])
        self._recording = False
        self._training_events: int | None = None
        self._cublas_handles: set[str] = set()
        self._op_costs: list[OpCost] = []
        self._op_starts: list[int] = []
        self._classes = 0
        self._pinned: dict[int, int] = defaultdict(int)  # bytes that each phase has copied to the host
        self._calls: list[ModuleCall] = []
        self._node: dict[int, int] = {}  # live storage to the backward node that allocated it
        self._sums: dict[int, tuple[int, ...]] = {}
        self._module_classes: dict[str, str] = {}
        # FSDP2 gathers on streams of its own, which torch gives to CPU code as well.
        self._streams: dict[torch.cpu.Stream, int] = {torch.cpu.current_stream(): 0}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if self.sharded_type in types:
            return NotImplemented  # the operations on this rank's shards follow
        with torch._C.DisableTorchFunction():  # what happens in here is no call of the user's
            out = self.values.call(func, args, kwargs or {})
            if self._recording:
                self._record(str(func), args, out)
        return out

    @contextmanager
    def phase(self, phase: Phase, step: int) -> Iterator[None]:
        """Record the operations inside as part of a phase of a step."""
        self._now = _Moment(phase, step)
        self._phase_starts.append((len(self._events), step, phase))
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Run the operations inside without recording them."""
        recording, self._recording = self._recording, False
        try:
            yield
        finally:
            self._recording = recording

    @property
    def is_recording(self) -> bool:
        """True inside a phase."""
        return self._recording

    def name_modules(self, modules: Iterable[tuple[str, nn.Module]]) -> None:
        """Keep the classes of modules, by path."""
        self._module_classes.update((path, type(module).__name__) for path, module in modules)

    def end_training(self) -> None:
        """Mark the end of the training steps."""
        self._training_events = len(self._events)

    def start_step(self) -> None:
        """Discard the operation costs and module calls of earlier steps."""
        self._op_costs.clear()
        self._op_starts.clear()
        self._calls.clear()

    def adopt(self, tensor: Tensor, kind: StorageKind, name: str = "") -> None:
        """Record a tensor that was created outside the recording as allocated now."""
        for storage in storages_of(tensor):
            if storage._cdata not in self._live and storage.nbytes():
                self._add(storage, self._storage(storage.nbytes(), kind, "", _Origin(name, self._running_stack())))

    def resize(self, torch_storage: torch.UntypedStorage, size: int, kind: StorageKind) -> None:
        """Record that a storage gets memory of this size, or frees what it has."""
        key = torch_storage._cdata
        if key in self._live:
            self._free(self._live[key], key)
        if size and self._recording:
            self._add(torch_storage, self._storage(size, kind, "", self._current_origin()))

    def label(self, tensor: Tensor, kind: StorageKind, name: str = "") -> None:
        """Set the kind and the name of a live tensor."""
        for torch_storage in storages_of(tensor):
            index = self._live.get(torch_storage._cdata)
            if index is not None:
                storage = self._storages[index]
                self._storages[index] = replace(storage, kind=kind, module=name or storage.module)

    def enter_module(self, path: str) -> None:
        """Mark the start of a module's forward pass."""
        self._modules.append(path)

    def leave_module(self) -> None:
        """Mark the end of a module's forward pass."""
        self._modules.pop()

    def add_call(self, call: ModuleCall) -> None:
        """Add a module's forward pass; one that is repeated in backward doesn't count."""
        if self._now.phase is Phase.FORWARD and self._training_events is None:
            self._calls.append(call)

    def add_cost(self, op: str, traffic: int) -> None:
        """Add an operation that no dispatch shows; `TO_HOST` and `TO_DEVICE` move bytes over the link."""
        if op == TO_HOST:
            # torch's allocator of pinned memory rounds up to powers of two and keeps what is freed.
            self._pinned[len(self._phase_starts)] += 1 << (traffic - 1).bit_length()
        if self._training_events is None:
            self._op_costs.append(OpCost(op, "float32", 0, traffic, self._current_origin().module, self._now.phase))
            self._op_starts.append(len(self._events))

    def indices_of(self, tensors: Iterable[Tensor]) -> tuple[int, ...]:
        """Return the indices of the live storages of tensors."""
        indices = (self._live.get(storage._cdata) for tensor in tensors for storage in storages_of(tensor))
        return tuple(dict.fromkeys(index for index in indices if index is not None))

    def trace(self) -> Trace:
        """Return the recording so far; it can go on."""
        merged = merge_sums(self._events, self._sums)
        storages = list(self._storages)
        for index, host in merged.hosts.items():
            if storages[index].kind is StorageKind.GRADIENT:
                storages[host] = replace(storages[index], op=storages[host].op)
        training_events = len(self._events) if self._training_events is None else self._training_events
        phase_starts = [(merged.positions[start], step, phase) for start, step, phase in self._phase_starts]
        return Trace(
            storages=tuple(_with_activations(storages, merged.events, phase_starts)),
            events=merged.events,
            phase_starts=tuple(phase_starts),
            training_events=merged.positions[training_events],
            op_costs=tuple(self._op_costs),
            assumptions=tuple(dict.fromkeys((*_sentences(self.values.guesses), *self.assumptions))),
            guesses=tuple(self.values.guesses),
            module_classes=tuple(self._module_classes.items()),
            calls=tuple(self._calls),
            classes=self._classes,
            pinned=max(self._pinned.values(), default=0),
            op_starts=tuple(merged.positions[start] for start in self._op_starts),
        )

    def _record(self, op: str, args: tuple[Any, ...], out: Any) -> None:
        outs = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        origin = self._current_origin()
        if self._training_events is None:
            self._op_costs.extend(op_cost(op, args, outs, origin.module, self._now.phase))
            self._op_starts += [len(self._events)] * (len(self._op_costs) - len(self._op_starts))
        if op in _CLASS_LOSSES:
            self._classes = max(self._classes, args[0].shape[1] if args[0].dim() > 1 else 0)
        steps = self._rule_steps(op, args, outs)
        if steps is None:
            self._record_without_rule(op, args, out, origin)
            return
        held: list[int] = []
        for step in steps:
            if isinstance(step, AllocateResult):
                self._add_result(outs[step.index], op, origin, step.size)
            elif isinstance(step, FreeTemporaries):
                self._events.extend(-index - 1 for index in held[: step.count])
                del held[: step.count]
            elif step.size:
                index = self._add_temporary(step.size, op, origin, workspace=step.workspace, optional=step.optional)
                if step.hold:
                    held.append(index)
                else:
                    self._events.append(-index - 1)
        self._events.extend(-index - 1 for index in held)

    def _record_without_rule(self, op: str, args: tuple[Any, ...], out: Any, origin: _Origin) -> None:
        for tensor in tree_leaves(out):
            self._add_result(tensor, op, origin)
        if op in _IN_PLACE and self._now.phase is Phase.BACKWARD and not torch.is_grad_enabled():
            self._note_in_place(op, out, args)
        if op in CUBLAS_OPS and isinstance(self.device, CudaDevice):
            self._add_cublas_workspaces(self.device, op, origin)

    def _rule_steps(self, op: str, args: tuple[Any, ...], outs: tuple[Any, ...]) -> Iterator[RuleStep] | None:
        """Return the allocations within an operation; None if there is no rule for it."""
        if isinstance(self.device, CudaDevice):
            cuda_rule = CUDA_RULES.get(op)
            return None if cuda_rule is None else cuda_rule(args, outs, self.device)
        cpu_rule = CPU_RULES.get(op)
        return None if cpu_rule is None else cpu_rule(args, outs)

    def _add_cublas_workspaces(self, device: CudaDevice, op: str, origin: _Origin) -> None:
        """Add the permanent workspaces of cuBLAS: the main thread and the backward thread each have a handle."""
        thread = "backward" if self._now.phase is Phase.BACKWARD else "main"
        if thread not in self._cublas_handles:
            self._cublas_handles.add(thread)
            self._add_temporary(device.cublas_workspace, op, origin)
        if op == "aten.addmm.default" and f"{thread}, cublasLt" not in self._cublas_handles:
            self._cublas_handles.add(f"{thread}, cublasLt")
            self._add_temporary(device.cublaslt_workspace, op, origin)

    def _add_result(self, tensor: object, op: str, origin: _Origin, size: int = 0) -> None:
        if not isinstance(tensor, Tensor):
            return
        for storage in storages_of(tensor):
            if storage._cdata not in self._live and storage.nbytes():
                self._add(storage, self._storage(size or storage.nbytes(), StorageKind.TEMPORARY, op, origin))

    def _note_in_place(self, op: str, out: Tensor, args: tuple[Any, ...]) -> None:
        """Note a result that autograd would write into an argument if the tensors were real."""
        node: Any = torch._C._current_autograd_node()
        if node is None or out.layout is not torch.strided:
            return
        candidates = [arg for arg in args if isinstance(arg, Tensor) and _can_hold(arg, out)]
        result, *addends = (self._live.get(tensor.untyped_storage()._cdata) for tensor in (out, *candidates))
        indices = [index for index in addends if index is not None]
        if result is None or not indices:
            return
        # In a sum of gradients that meet, the first addend is older than the node that has just run.
        if op == "aten.add.Tensor" and self._node.get(indices[0]) != node._sequence_nr():
            self._sums[result] = tuple(indices)
        elif node.name() in _IN_PLACE[op]:
            self._sums[result] = (indices[0],)

    def _add_temporary(
        self, size: int, op: str, origin: _Origin, *, workspace: bool = True, optional: bool = False
    ) -> int:
        kind = StorageKind.WORKSPACE if workspace else StorageKind.TEMPORARY
        self._storages.append(self._storage(size, kind, op, origin, optional=optional))
        self._events.append(len(self._storages))
        return len(self._storages) - 1

    def _storage(self, size: int, kind: StorageKind, op: str, origin: _Origin, *, optional: bool = False) -> Storage:
        stream = self._streams.setdefault(torch.cpu.current_stream(), len(self._streams))
        return Storage(size, kind, op, origin.module, self._now.phase, self._now.step, optional, origin.stack, stream)

    def _add(self, torch_storage: torch.UntypedStorage, storage: Storage) -> None:
        index, key = len(self._storages), torch_storage._cdata
        self._storages.append(storage)
        self._events.append(index + 1)
        self._live[key] = index
        node = torch._C._current_autograd_node() if self._now.phase is Phase.BACKWARD else None
        if node is not None:
            self._node[index] = node._sequence_nr()

        self._finalizers[index] = weakref.ref(torch_storage, lambda _: self._free(index, key))

    def _free(self, index: int, key: int) -> None:
        self._events.append(-index - 1)
        self._finalizers.pop(index, None)
        if self._live.get(key) == index:
            del self._live[key]

    def _current_origin(self) -> _Origin:
        """Return the origin of the running operation; in backward, that of the operation being differentiated."""
        starts, origins = self._sequence
        node = torch._C._current_autograd_node() if self._now.phase is Phase.BACKWARD else None
        if node is not None:
            position = bisect_right(starts, node._sequence_nr()) - 1
            origin = origins[position] if 0 <= position < len(origins) else _Origin()
            return _Origin(origin.module, self._running_stack()) if self._keeps_stacks and not origin.stack else origin
        origin = _Origin(self._modules[-1] if self._modules else "", self._running_stack())
        if self._now.phase is Phase.FORWARD:
            number = torch._C._autograd._get_sequence_nr() - 1
            if not starts or starts[-1] < number:
                starts.append(number)
                origins.append(origin)
        return origin

    def _running_stack(self) -> tuple[CodeLine, ...]:
        """Return the running lines of the user's code if they are kept."""
        if not self._keeps_stacks:
            return ()
        stack = running_stack()
        return self._stacks.setdefault(stack, stack)


def _with_activations(
    storages: Sequence[Storage], events: Sequence[int], phase_starts: Sequence[tuple[int, int, Phase]]
) -> Iterator[Storage]:
    """Yield the storages; forward temporaries that live beyond the forward pass become saved activations."""
    freed_at: dict[int, int] = {-event - 1: position for position, event in enumerate(events) if event < 0}
    starts = [start for start, _, _ in phase_starts]
    for index, storage in enumerate(storages):
        if storage.kind is StorageKind.TEMPORARY and storage.phase is Phase.FORWARD and index in freed_at:
            _, _, phase = phase_starts[max(bisect_right(starts, freed_at[index]) - 1, 0)]
            if phase is not Phase.FORWARD:
                yield replace(storage, kind=StorageKind.ACTIVATION)
                continue
        yield storage


def _sentences(guesses: Iterable[Guess]) -> Iterator[str]:
    """Yield what was guessed, each assumption once, with the first lines that rest on it."""
    lines: dict[str, list[str]] = {}
    for guess in guesses:
        lines.setdefault(guess.text, []).append(guess.line)
    for text, places in lines.items():
        named = [line for line in places if line]
        more = f" and {len(named) - _MAX_LINES} more lines" if len(named) > _MAX_LINES else ""
        yield f"{text}, at {'; '.join(named[:_MAX_LINES])}{more}" if named else text


def storages_of(tensor: Tensor) -> list[torch.UntypedStorage]:
    """Return the memory of a tensor: several storages for a sparse one and for subclasses that wrap others."""
    if type(tensor) is FakeTensor and tensor.layout is torch.strided:
        return [tensor.untyped_storage()]
    wrapper: Any = tensor
    if is_traceable_wrapper_subclass(wrapper):
        parts = (getattr(wrapper, name) for name in wrapper.__tensor_flatten__()[0])  # a DTensor's mesh is one
        return [storage for part in parts if isinstance(part, Tensor) for storage in storages_of(part)]
    if tensor.layout is torch.strided:
        return [tensor.untyped_storage()]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices().untyped_storage(), tensor._values().untyped_storage()]
    return []


def _can_hold(tensor: Tensor, other: Tensor) -> bool:
    """Return True if a tensor is dense in memory and has the shape and dtype of the other."""
    if tensor.layout is not torch.strided:
        return False
    size = 1
    for stride, count in sorted(pair for pair in zip(tensor.stride(), tensor.shape, strict=True) if pair[1] > 1):
        if stride != size:
            return False
        size *= count
    return tensor.shape == other.shape and tensor.dtype == other.dtype
