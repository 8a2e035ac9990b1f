"""The predicted timeline as a memory snapshot, in the format of `torch.cuda.memory._snapshot()`.

Torch's tools read it: pytorch.org/memory_viz and `torch.cuda._memory_viz`. Sizes of allocations and frees are those
that the allocator counts, so that their peak is `Prediction.allocated`; recorded snapshots have the requested sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...machine import Target
from ...settings import AllocatorConfig, Settings, parse_allocator
from ...trace import Storage, Trace
from .._names import module_name, op_name
from ._allocator_history import Action, Block, Segment, allocator_history
from ._schedule import event_seconds, schedule

_Frames = list[dict[str, Any]]
_DEVICE = 0
_UNLIMITED = -1
_NO_CATEGORY = "unknown"  # the viewer fails without it where other events have categories


def memory_snapshot(trace: Trace, settings: Settings, target: Target) -> dict[str, Any]:
    """Return the timeline of the training steps as a memory snapshot, of builtin types only."""
    config = parse_allocator(settings.allocator)
    history = allocator_history(trace, config)
    seconds = event_seconds(trace, schedule(trace, settings, target))
    stacks = _Stacks(trace)
    entries = (
        {**entry, "time_us": round(seconds[action.event] * 1e6)}
        for action in history.actions
        for entry in _entries(action, trace, stacks)
    )
    return {
        "segments": [_segment(segment, trace, stacks, config) for segment in history.segments],
        "device_traces": [list(entries)],
        "allocator_settings": {
            "expandable_segments": config.expandable,
            "max_split_size": _UNLIMITED if config.max_split is None else config.max_split,
        },
        "external_annotations": [],
    }


class _Stacks:
    """The frames of storages; equal ones are the same list, which a pickle stores once."""

    def __init__(self, trace: Trace) -> None:
        self._classes = dict(trace.module_classes)
        self._frames: dict[tuple[object, ...], _Frames] = {}

    def frames_of(self, storage: Storage) -> _Frames:
        """Return the operation, the module, the step and the lines of the user's code, innermost first."""
        key = (storage.op, storage.module, storage.step, storage.phase, storage.stack)
        if key not in self._frames:
            self._frames[key] = list(self._list_frames(storage))
        return self._frames[key]

    def _list_frames(self, storage: Storage) -> Iterator[dict[str, Any]]:
        # The tools show frames as "filename:line:name".
        if storage.op:
            yield {"filename": "operation", "line": 0, "name": op_name(storage.op)}
        if storage.module:
            yield {"filename": "module", "line": 0, "name": module_name(storage.module, self._classes)}
        yield {"filename": "step", "line": storage.step + 1, "name": storage.phase.value}
        for file, line, function in storage.stack:
            yield {"filename": file, "line": line, "name": function}


def _entries(action: Action, trace: Trace, stacks: _Stacks) -> Iterator[dict[str, Any]]:
    """Yield the trace entries of an action; a free is requested, and without record_stream completed at once."""
    storage = None if action.storage is None else trace.storages[action.storage]
    names = ("free_requested", "free_completed") if action.name == "free" else (action.name,)
    for name in names:
        yield {
            "action": name,
            "addr": action.address,
            "size": action.size,
            "stream": action.stream,
            "frames": [] if storage is None else stacks.frames_of(storage),
            "category": _NO_CATEGORY if storage is None else storage.kind.value,
            "compile_context": "N/A",
            "user_metadata": "",
        }


def _segment(segment: Segment, trace: Trace, stacks: _Stacks, config: AllocatorConfig) -> dict[str, Any]:
    storages = [(block, trace.storages[block.storage]) for block in segment.blocks if block.storage is not None]
    allocated = sum(block.size for block, _ in storages)
    return {
        "device": _DEVICE,
        "address": segment.blocks[0].address,
        "total_size": segment.size,
        "allocated_size": allocated,
        "active_size": allocated,
        "requested_size": sum(storage.size for _, storage in storages),
        "stream": segment.stream,
        "segment_type": "small" if segment.is_small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": config.expandable,
        "frames": [],
        "blocks": [_block(block, trace, stacks) for block in segment.blocks],
    }


def _block(block: Block, trace: Trace, stacks: _Stacks) -> dict[str, Any]:
    storage = None if block.storage is None else trace.storages[block.storage]
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": 0 if storage is None else storage.size,
        "state": "inactive" if storage is None else "active_allocated",
        "frames": [] if storage is None else stacks.frames_of(storage),
    }
