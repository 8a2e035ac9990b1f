"""Memory and time of a training step by its structure: estimates for other micro-batches and checkpointed modules.

One traced step says what each module keeps for backward and how long its forward takes. From that follow, without
another trace, the peak and the time if some modules are recomputed, and if the batch is split: activations and
arithmetic grow with the samples, weights and launches don't.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from ..machine import Target
from ..prediction import device_seconds, launch_seconds, overlapped_seconds, recompute_launch_seconds, replay
from ..settings import MIN_OFFLOADED, Settings, parse_allocator
from ..trace import ModuleCall, OpCost, Phase, StorageKind, Trace

_WEIGHT_KINDS = {StorageKind.PARAMETER, StorageKind.BUFFER}


@dataclass(frozen=True)
class Recomputable:
    """A module that can be checkpointed.

    Attributes:
        path: the module.
        activations: positions in `StepProfile.activations` of what it keeps for backward, without its outputs.
        kept: bytes of inputs that have to be kept in addition if it is checkpointed.
        saved: bytes that checkpointing it saves at the end of forward.
        launching: seconds that the CPU takes to recompute it.
    """

    path: str
    activations: tuple[int, ...]
    kept: int
    saved: int
    launching: float


@dataclass(frozen=True)
class StepProfile:
    """One traced step of a whole batch.

    Attributes:
        settings: what was traced.
        target: where it runs.
        activations: (module, bytes) of what is kept for backward, in the order of allocation.
        weights: bytes of parameters, buffers and the permanent workspaces of libraries.
        gradients: bytes of gradients.
        states: bytes of optimizer state.
        temporary: by module, the most bytes of intermediate results while its forward or backward runs.
        other: bytes at the peak that are none of these.
        modules: what can be checkpointed, by path.
        costs: the operations of the step.
        launching: seconds that the CPU takes to launch forward and backward.
        launching_update: seconds that the CPU takes to launch the update.
        classes: number of classes of its cross entropy, the largest one; 0 if it has none.
    """

    settings: Settings
    target: Target
    activations: tuple[tuple[str, int], ...]
    weights: int
    gradients: int
    states: int
    temporary: Mapping[str, int]
    other: int
    modules: Mapping[str, Recomputable]
    costs: tuple[OpCost, ...]
    launching: float
    launching_update: float
    classes: int = 0
    _seconds: dict[float, _Seconds] = field(default_factory=dict, compare=False, repr=False)

    @property
    def has_convolutions(self) -> bool:
        """True if the step has convolutions, whose speed depends on the memory format."""
        return any("convolution" in cost.op for cost in self.costs)

    @property
    def min_micro_batch(self) -> int:
        """The smallest micro-batch that it can run with: BatchNorm needs two samples."""
        return 2 if any("batch_norm" in cost.op for cost in self.costs) else 1

    def on(self, target: Target) -> StepProfile:
        """Return the profile on another GPU of the same architecture."""
        return replace(self, target=target, _seconds={})

    def repeated(self, count: int) -> StepProfile:
        """Return the profile of a batch that is so many times as large, in one piece."""
        modules = {
            path: replace(module, kept=count * module.kept, saved=count * module.saved)
            for path, module in self.modules.items()
        }
        return replace(
            self,
            settings=replace(self.settings, batch=count * self.settings.batch),
            activations=tuple((module, count * size) for module, size in self.activations),
            temporary={module: count * size for module, size in self.temporary.items()},
            other=count * self.other,
            modules=modules,
            costs=tuple(_repeated(cost, count) for cost in self.costs),
            _seconds={},
        )

    def with_update(self, trace: Trace) -> StepProfile:
        """Return the profile of a pass with the states and the update of a trace of whole steps."""
        _, updating = _by_phase(trace.op_costs)
        computing, _ = _by_phase(self.costs)
        states = sum(storage.size for storage in trace.storages if storage.kind is StorageKind.STATE)
        return replace(
            self,
            states=states,
            costs=(*computing, *updating),
            launching_update=launch_seconds(updating),
            _seconds={},
        )

    def memory(self, micro_batch: int, checkpointed: Sequence[str], offloaded: Sequence[str] = ()) -> int:
        """Estimate the peak of allocated bytes in a later step, with the batch in micro-batches of a size."""
        scale = micro_batch / self.settings.batch
        on_host = self._offloaded(scale, offloaded)
        fixed = self.weights + self.states + (self.gradients if micro_batch < self.settings.batch else 0)
        return int(fixed + scale * (self.other + _activation_peak(self, checkpointed, on_host)))

    def seconds(self, micro_batch: int, checkpointed: Sequence[str], offloaded: Sequence[str] = ()) -> float:
        """Estimate the time of a step over the whole batch; copies to the host and back overlap with nothing."""
        count = -(-self.settings.batch // micro_batch)
        parts = self._scaled(1 / count)
        on_device = count * (parts.computing + sum(parts.forward[path] for path in checkpointed)) + parts.updating
        on_host = self._offloaded(1 / count, offloaded)
        on_host -= {position for path in checkpointed for position in self.modules[path].activations}
        copying = 2 * sum(self.activations[position][1] for position in on_host) / self.target.link
        if self.target.is_cpu:
            return on_device
        recomputing = sum(self.modules[path].launching for path in checkpointed)
        return overlapped_seconds(on_device, count * (self.launching + recomputing) + self.launching_update) + copying

    def _offloaded(self, scale: float, paths: Sequence[str]) -> set[int]:
        """Return the positions of the activations that are on the host, for a part of the batch."""
        return {
            position
            for position, (module, size) in enumerate(self.activations)
            if size * scale >= MIN_OFFLOADED and any(_is_offloaded(module, path) for path in paths)
        }

    def recompute_seconds(self, path: str, micro_batch: int) -> tuple[float, float]:
        """Estimate the seconds to recompute a module: on the device, and to launch it."""
        on_device = self._scaled(micro_batch / self.settings.batch).forward[path]
        return on_device, 0.0 if self.target.is_cpu else self.modules[path].launching

    def _scaled(self, scale: float) -> _Seconds:
        if scale not in self._seconds:
            self._seconds[scale] = _Seconds.of(self, scale)
        return self._seconds[scale]


@dataclass(frozen=True)
class _Seconds:
    """Times of a micro-batch of some size: forward and backward, the update, and the forward of each module."""

    computing: float
    updating: float
    forward: Mapping[str, float]

    @classmethod
    def of(cls, profile: StepProfile, scale: float) -> _Seconds:
        computing, updating = _by_phase(profile.costs)
        in_module: dict[str, float] = defaultdict(float)
        for cost in computing:
            if cost.phase is Phase.FORWARD:
                in_module[cost.module] += device_seconds([cost], profile.target, profile.settings, scale)
        return cls(
            computing=device_seconds(computing, profile.target, profile.settings, scale),
            updating=device_seconds(updating, profile.target, profile.settings),
            forward=_sums_over_tree(in_module, profile.modules),
        )


def _activation_peak(profile: StepProfile, checkpointed: Sequence[str], on_host: AbstractSet[int] = frozenset()) -> int:
    """Return the most bytes of activations and intermediate results while any module runs forward, backward or again.

    Backward frees activations in the reverse order: while a module runs, those before it are live, and what it has kept
    or recomputed itself. What is on the host comes back for one operation, which may need two of its kind.
    """
    owner = {position: path for path in checkpointed for position in profile.modules[path].activations}
    live = sum(profile.modules[path].kept for path in checkpointed)
    recomputed: dict[str, int] = {}  # what is live while a module runs again
    peak = 0
    for position, (module, size) in enumerate(profile.activations):
        path = owner.get(position)
        if path is None and position in on_host:
            level = live + 2 * size
        elif path is None:
            live += size
            level = live
        else:
            level = recomputed[path] = recomputed.get(path, live) + size
        peak = max(peak, level + profile.temporary.get(module, 0))
    return max(peak, live + profile.temporary.get("", 0))


def step_profile(trace: Trace, settings: Settings, target: Target) -> StepProfile:
    """Return the profile of a trace of one step with the whole batch."""
    storages = trace.storages
    kept = [(index, storage) for index, storage in enumerate(storages) if storage.kind is StorageKind.ACTIVATION]
    positions = {index: position for position, (index, _) in enumerate(kept)}
    computing, updating = _by_phase(trace.op_costs)
    activations = tuple((storage.module, storage.size) for _, storage in kept)
    freed = {-event - 1 for event in trace.events if event < 0}
    weights = sum(
        storage.size
        for index, storage in enumerate(storages)
        if storage.kind in _WEIGHT_KINDS or (storage.kind is StorageKind.WORKSPACE and index not in freed)
    )
    profile = StepProfile(
        settings=settings,
        target=target,
        activations=activations,
        weights=weights,
        gradients=sum(storage.size for storage in storages if storage.kind is StorageKind.GRADIENT),
        states=sum(storage.size for storage in storages if storage.kind is StorageKind.STATE and storage.step == 0),
        temporary=_temporary_peaks(trace),
        other=0,
        modules=dict(_recomputable(trace, activations, positions)),
        costs=trace.op_costs,
        launching=launch_seconds(computing),
        launching_update=launch_seconds(updating),
        classes=trace.classes,
    )
    allocated = replay(trace, parse_allocator(settings.allocator)).allocated
    return replace(profile, other=allocated - weights - _activation_peak(profile, ()))


def _temporary_peaks(trace: Trace) -> dict[str, int]:
    """Return the most bytes of intermediate results while operations of each module run, forward or backward."""
    peaks: dict[str, int] = defaultdict(int)
    live = 0
    for event in trace.events[: trace.training_events]:
        storage = trace.storages[abs(event) - 1]
        if storage.kind not in {StorageKind.TEMPORARY, StorageKind.WORKSPACE} or storage.phase is Phase.OPTIMIZER:
            continue
        live += storage.size if event > 0 else -storage.size
        peaks[storage.module] = max(peaks[storage.module], live)
    return peaks


def _by_phase(costs: Sequence[OpCost]) -> tuple[list[OpCost], list[OpCost]]:
    """Return the operations of forward and backward, and those of the update without the creation of its state."""
    computing = [cost for cost in costs if cost.phase is not Phase.OPTIMIZER]
    return computing, [cost for cost in costs if cost.phase is Phase.OPTIMIZER and not cost.op.startswith("zeros")]


def _repeated(cost: OpCost, count: int) -> OpCost:
    """Return the cost for a batch that is so many times as large; an update doesn't depend on the batch."""
    if cost.phase is Phase.OPTIMIZER:
        return cost
    return replace(cost, flops=count * cost.flops, traffic=count * cost.traffic)


def _recomputable(
    trace: Trace,
    activations: Sequence[tuple[str, int]],
    positions: Mapping[int, int],
) -> Iterator[tuple[str, Recomputable]]:
    calls: dict[str, list[ModuleCall]] = defaultdict(list)
    for call in trace.calls:
        calls[call.path].append(call)
    forward = [cost for cost in trace.op_costs if cost.phase is Phase.FORWARD]
    for path, module_calls in calls.items():
        if not path or any(call.writes_inputs for call in module_calls):
            continue
        outputs = {index for call in module_calls for index in call.outputs}
        inner = tuple(
            position
            for index, position in positions.items()
            if index not in outputs and is_under(activations[position][0], path)
        )
        inputs = {index for call in module_calls for index in call.inputs} - positions.keys()
        kept = sum(trace.storages[index].size for index in inputs if _is_temporary(trace, index))
        saved = sum(activations[position][1] for position in inner) - kept
        if saved > 0:
            launching = recompute_launch_seconds([cost for cost in forward if is_under(cost.module, path)])
            yield path, Recomputable(path, inner, kept, saved, launching)


def _is_temporary(trace: Trace, index: int) -> bool:
    return trace.storages[index].kind is StorageKind.TEMPORARY


def _sums_over_tree(values: Mapping[str, float], paths: Mapping[str, object]) -> dict[str, float]:
    """Return the sum of values of each path and of everything below it."""
    sums = dict.fromkeys(paths, 0.0)
    for path, value in values.items():
        for ancestor in _ancestors(path):
            if ancestor in sums:
                sums[ancestor] += value
    return sums


@functools.cache
def _ancestors(path: str) -> tuple[str, ...]:
    parts = path.split(".")
    return tuple(".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _is_offloaded(module: str, path: str) -> bool:
    """Return True if an activation is offloaded with a path; what has no module may be of the loss."""
    return is_under(module, path) if path else bool(module)


def is_under(path: str, ancestor: str) -> bool:
    """Return True for a path and everything below it."""
    return path == ancestor or path.startswith(f"{ancestor}.")
