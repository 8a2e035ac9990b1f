"""One training step under fake tensors, turned into events: births and deaths of storages by op, phase and module.

The only layer that knows how CUDA's kernels differ from what a fake tensor shows. torch is imported when a trace is
asked for, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._device import Device, Host
from ._events import RECURRENT, OpCost, Phase, Storage, StorageKind, Trace

if TYPE_CHECKING:
    from ..job import Job
    from ..settings import Settings

__all__ = ["RECURRENT", "Device", "Host", "OpCost", "Phase", "Storage", "StorageKind", "Trace", "trace_step"]


def trace_step(job: Job, settings: Settings, device: Device | Host) -> Trace:
    """Trace several training steps of a Job as they would run there, then validation and what else keeps memory.

    Raises:
        UsageError: the Job raises, or its loss is no scalar.
    """
    from ._step import trace_step as trace  # noqa: PLC0415  torch costs seconds

    return trace(job, settings, device)
