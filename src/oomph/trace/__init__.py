"""Tracing: a training step on fake tensors, recorded as allocations and frees by operation, phase and module.

This is the only layer that models how CUDA kernels differ from fake tensors. It imports torch on the first trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._device import CpuDevice, CudaDevice
from ._trace import COMPILED, RECURRENT_ESTIMATE, Guess, OpCost, Phase, Storage, StorageKind, Trace

if TYPE_CHECKING:
    from ..job import Job
    from ..settings import Settings

__all__ = [
    "COMPILED",
    "RECURRENT_ESTIMATE",
    "CpuDevice",
    "CudaDevice",
    "Guess",
    "OpCost",
    "Phase",
    "Storage",
    "StorageKind",
    "Trace",
    "trace_step",
]


def trace_step(job: Job, settings: Settings, device: CudaDevice | CpuDevice) -> Trace:
    """Trace several training steps of a Job on a device, then validation and a moving average of the weights.

    Raises:
        UsageError: the Job's functions fail, or its loss is not a scalar.
    """
    from ._step import trace_step as trace  # noqa: PLC0415  importing torch takes seconds

    return trace(job, settings, device)
