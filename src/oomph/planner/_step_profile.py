"""Memory and time of a training step by its structure: estimates for other micro-batches and checkpointed modules.

One traced step says what each module keeps for backward and how long its forward takes. From that follow, without
another trace, the peak and the time if some modules are recomputed, and if the batch is split: activations and
arithmetic grow with the samples, weights and launches don't.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..machine import Target
from ..prediction import device_seconds, launch_seconds, overlapped_seconds, replay
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
        operations: number of operations in its forward pass.
    """

    path: str
    activations: tuple[int, ...]
    kept: int
    saved: int
    operations: int


@dataclass(frozen=True)
class StepProfile:
    """One traced step of a whole batch.

    Attributes:
        settings: what was traced.
        target: where it runs.
        activations: (module, bytes) of what is kept for backward, in the order of allocation.
        weights: bytes of parameters and buffers.
        gradients: bytes of gradients.
        states: bytes of optimizer state.
        temporary: bytes at the peak beyond weights and activations.
        modules: what can be checkpointed, by path.
        costs: the operations of the step.
        classes: number of classes of its cross entropy, the largest one; 0 if it has none.
    """

    settings: Settings
    target: Target
    activations: tuple[tuple[str, int], ...]
    weights: int
    gradients: int
    states: int
    temporary: int
    modules: Mapping[str, Recomputable]
    costs: tuple[OpCost, ...]
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

    def memory(self, micro_batch: int, checkpointed: Sequence[str], offloaded: Sequence[str] = ()) -> int:
        """Estimate the peak of allocated bytes in a later step, with the batch in micro-batches of a size."""
        scale = micro_batch / self.settings.batch
        on_host = self._offloaded(scale, offloaded)
        fixed = self.weights + self.states + (self.gradients if micro_batch < self.settings.batch else 0)
        return int(fixed + scale * (self.temporary + self._activation_peak(checkpointed, on_host)))

    def seconds(self, micro_batch: int, checkpointed: Sequence[str], offloaded: Sequence[str] = ()) -> float:
        """Estimate the time of a step over the whole batch; copies to the host and back overlap with nothing."""
        count = -(-self.settings.batch // micro_batch)
        parts = self._scaled(self.settings.batch / count / self.settings.batch)
        operations = sum(self.modules[path].operations for path in checkpointed)
        on_device = count * (parts.computing + sum(parts.forward[path] for path in checkpointed)) + parts.updating
        launched = count * (parts.computing_operations + operations) + parts.updating_operations
        launching = launch_seconds(launched, count * len(checkpointed), self.target)
        on_host = self._offloaded(1 / count, offloaded)
        on_host -= {position for path in checkpointed for position in self.modules[path].activations}
        copied = sum(self.activations[position][1] for position in on_host)
        return overlapped_seconds(on_device, launching) + 2 * copied / self.target.link

    def _offloaded(self, scale: float, paths: Sequence[str]) -> set[int]:
        """Return the positions of the activations that are on the host, for a part of the batch."""
        return {
            position
            for position, (module, size) in enumerate(self.activations)
            if size * scale >= MIN_OFFLOADED and any(_is_offloaded(module, path) for path in paths)
        }

    def recompute_seconds(self, path: str, micro_batch: int) -> tuple[float, float]:
        """Estimate the seconds to recompute a module: on the device, and to launch it."""
        module = self.modules[path]
        forward = self._scaled(micro_batch / self.settings.batch).forward[path]
        return forward, launch_seconds(module.operations, 1, self.target)

    def _activation_peak(self, checkpointed: Sequence[str], on_host: set[int]) -> int:
        """Return the bytes of activations at the peak, at the end of forward or while a module is recomputed.

        Activations on the host come back for one operation, two of them for the largest ones.
        """
        owner = {position: path for path in checkpointed for position in self.modules[path].activations}
        live = sum(self.modules[path].kept for path in checkpointed)
        before: dict[str, int] = {}
        recomputed: dict[str, int] = defaultdict(int)
        for position, (_, size) in enumerate(self.activations):
            path = owner.get(position)
            if path is None:
                live += size if position not in on_host else 0
            else:
                before.setdefault(path, live)
                recomputed[path] += size
        loaded = 2 * max((self.activations[position][1] for position in on_host - owner.keys()), default=0)
        return max([live + loaded, *(before[path] + size for path, size in recomputed.items())])

    def _scaled(self, scale: float) -> _Seconds:
        if scale not in self._seconds:
            self._seconds[scale] = _Seconds.of(self, scale)
        return self._seconds[scale]


@dataclass(frozen=True)
class _Seconds:
    """Times of a micro-batch of some size: forward and backward, the update, and the forward of each module."""

    computing: float
    computing_operations: int
    updating: float
    updating_operations: int
    forward: Mapping[str, float]

    @classmethod
    def of(cls, profile: StepProfile, scale: float) -> _Seconds:
        computing = [cost for cost in profile.costs if cost.phase is not Phase.OPTIMIZER]
        updating = [cost for cost in profile.costs if cost.phase is Phase.OPTIMIZER]
        in_module: dict[str, float] = defaultdict(float)
        for cost in computing:
            if cost.phase is Phase.FORWARD:
                in_module[cost.module] += device_seconds([cost], profile.target, profile.settings, scale)
        return cls(
            computing=device_seconds(computing, profile.target, profile.settings, scale),
            computing_operations=len(computing),
            updating=device_seconds(updating, profile.target, profile.settings),
            updating_operations=len(updating),
            forward=_sums_over_tree(in_module, profile.modules),
        )


def step_profile(trace: Trace, settings: Settings, target: Target) -> StepProfile:
    """Return the profile of a trace of one step with the whole batch."""
    storages = trace.storages
    kept = [(index, storage) for index, storage in enumerate(storages) if storage.kind is StorageKind.ACTIVATION]
    positions = {index: position for position, (index, _) in enumerate(kept)}
    operations: dict[str, float] = defaultdict(float)
    for cost in trace.op_costs:
        operations[cost.module] += cost.phase is Phase.FORWARD
    activations = tuple((storage.module, storage.size) for _, storage in kept)
    weights = sum(storage.size for storage in storages if storage.kind in _WEIGHT_KINDS)
    peak = _peak_before_update(trace, settings)
    return StepProfile(
        settings=settings,
        target=target,
        activations=activations,
        weights=weights,
        gradients=sum(storage.size for storage in storages if storage.kind is StorageKind.GRADIENT),
        states=sum(storage.size for storage in storages if storage.kind is StorageKind.STATE and storage.step == 0),
        temporary=peak - weights - sum(size for _, size in activations),
        modules=dict(_recomputable(trace, activations, positions, operations)),
        costs=trace.op_costs,
        classes=trace.classes,
    )


def _peak_before_update(trace: Trace, settings: Settings) -> int:
    """Return the peak of allocated bytes in forward and backward."""
    return replay(trace, parse_allocator(settings.allocator)).allocated


def _recomputable(
    trace: Trace,
    activations: Sequence[tuple[str, int]],
    positions: Mapping[int, int],
    operations: Mapping[str, float],
) -> Iterator[tuple[str, Recomputable]]:
    calls: dict[str, list[ModuleCall]] = defaultdict(list)
    for call in trace.calls:
        calls[call.path].append(call)
    counts = _sums_over_tree(operations, calls)
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
            yield path, Recomputable(path, inner, kept, saved, int(counts[path]))


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
