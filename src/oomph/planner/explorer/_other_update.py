"""A traced step with the update of another trace: passes don't depend on how the optimizer updates."""

from __future__ import annotations

from dataclasses import replace

from ...trace import Phase, StorageKind, Trace


def with_update_of(trace: Trace, other: Trace) -> Trace:
    """Return the trace of one step with the update of another trace of one step with the same parameters."""
    start = _update_start(trace)
    storages, events = list(trace.storages), list(trace.events[:start])
    live = {number for number in events if number > 0} - {-event for event in events if event < 0}
    gradients = {
        trace.storages[number - 1].module: number
        for number in sorted(live)
        if trace.storages[number - 1].kind is StorageKind.GRADIENT
    }
    numbers: dict[int, int] = {}
    for event in other.events[_update_start(other) : other.training_events]:
        storage = other.storages[abs(event) - 1]
        if event > 0:
            storages.append(storage)
            numbers[event] = len(storages)
            events.append(len(storages))
        elif -event in numbers:
            events.append(-numbers.pop(-event))
        elif storage.module in gradients:
            events.append(-gradients.pop(storage.module))
    events += [-number for number in gradients.values()]
    phases = [(position, step, phase) for position, step, phase in trace.phase_starts if position <= start]
    return replace(
        trace,
        storages=tuple(storages),
        events=tuple(events),
        phase_starts=tuple(phases),
        training_events=len(events),
    )


def _update_start(trace: Trace) -> int:
    return next(position for position, _, phase in trace.phase_starts if phase is Phase.OPTIMIZER)
