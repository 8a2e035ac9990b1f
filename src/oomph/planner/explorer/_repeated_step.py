"""Several steps and micro-batches from the trace of one: what a second pass allocates is known from the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ...trace import Phase, Storage, StorageKind, Trace

_PASS = {Phase.FORWARD, Phase.BACKWARD}
_STEPS = 2  # the optimizer's states are there from the second step on


def repeated_step(trace: Trace, micro_batches: int) -> Trace:
    """Return the trace of two steps with so many equal micro-batches, from the trace of one step in one piece.

    What the traced step never frees (weights, states, workspaces of libraries) is allocated once. Gradients stay until
    the update; those of later micro-batches are added to them and freed after their operation. `op_costs` stay those of
    one step.
    """
    ends = [*(start for start, _, _ in trace.phase_starts[1:]), trace.training_events]
    phases = [
        (phase, trace.events[start : min(end, trace.training_events)])
        for (start, _, phase), end in zip(trace.phase_starts, ends, strict=True)
    ]
    freed = frozenset(-event for event in trace.events[: trace.training_events] if event < 0)
    recording = _Recording(trace.storages, freed)
    for phase, events in phases:
        if phase is Phase.BUILD:
            recording.start(phase, 0)
            recording.play(events)
    for step in range(_STEPS):
        for _ in range(micro_batches):
            for phase, events in phases:
                if phase in _PASS:
                    recording.start(phase, step)
                    recording.play(events)
        for phase, events in phases:
            if phase is Phase.OPTIMIZER:
                recording.start(phase, step)
                recording.play(events)
    return replace(
        trace,
        storages=tuple(recording.storages),
        events=tuple(recording.events),
        phase_starts=tuple(recording.phase_starts),
        training_events=len(recording.events),
    )


@dataclass
class _Recording:
    """Events of repeated phases; each repetition allocates storages of its own."""

    traced: tuple[Storage, ...]
    freed: frozenset[int]
    storages: list[Storage] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    phase_starts: list[tuple[int, int, Phase]] = field(default_factory=list)
    _live: dict[int, int] = field(default_factory=dict)
    _added: list[int] = field(default_factory=list)

    def start(self, phase: Phase, step: int) -> None:
        self.phase_starts.append((len(self.events), step, phase))

    def play(self, events: Iterable[int]) -> None:
        for event in events:
            number = abs(event)
            if event < 0:
                self.events.append(-self._live.pop(number))
                continue
            self._free_sums(self.traced[number - 1])
            if number not in self._live:
                self._live[number] = self._allocate(number)
            elif number in self.freed:  # a gradient, which is added to that of the micro-batch before
                self._added.append(self._allocate(number))
        self._free_sums(None)

    def _free_sums(self, following: Storage | None) -> None:
        """Free gradients that were added to others, once another operation than theirs follows."""
        for position in self._added.copy():
            if following is None or _source(self.storages[position - 1]) != _source(following):
                self._added.remove(position)
                self.events.append(-position)

    def _allocate(self, number: int) -> int:
        self.storages.append(self.traced[number - 1])
        position = len(self.storages)
        self.events.append(position)
        return position


def _source(storage: Storage) -> tuple[str, str]:
    """Return the operation and the module that allocated a storage; a gradient has the path of its parameter."""
    is_gradient = storage.kind is StorageKind.GRADIENT
    return storage.op, storage.module.rpartition(".")[0] if is_gradient else storage.module
