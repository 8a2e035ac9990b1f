"""Tracing: a training step on fake tensors, recorded as allocations and frees by operation, phase and module.

This is the only layer that models how CUDA kernels differ from fake tensors. It imports torch on the first trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._device import CpuDevice, CudaDevice, EmulatedDevice
from ._trace import (
    COMPILED,
    RECURRENT_ESTIMATE,
    TO_DEVICE,
    TO_HOST,
    CodeLine,
    Guess,
    ModuleCall,
    OpCost,
    Phase,
    Storage,
    StorageKind,
    Trace,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..job import Job
    from ..settings import Settings
    from .live import LiveTrace

__all__ = [
    "COMPILED",
    "RECURRENT_ESTIMATE",
    "TO_DEVICE",
    "TO_HOST",
    "CodeLine",
    "CpuDevice",
    "CudaDevice",
    "EmulatedDevice",
    "Guess",
    "ModuleCall",
    "OpCost",
    "Phase",
    "Storage",
    "StorageKind",
    "Trace",
    "trace_profile",
    "trace_program",
    "trace_step",
]


def trace_step(job: Job, settings: Settings, device: CudaDevice | CpuDevice, *, stacks: bool = False) -> Trace:
    """Trace several training steps of a Job on a device, then validation and a moving average of the weights.

    Args:
        job: what to train.
        settings: how to train it.
        device: where to train it.
        stacks: keep the lines of the user's code that made each allocation, which takes longer.

    Raises:
        UsageError: the Job's functions fail, or its loss is not a scalar.
    """
    from ._step import trace_step as trace  # noqa: PLC0415  importing torch takes seconds

    return trace(job, settings, device, stacks=stacks)


def trace_profile(job: Job, settings: Settings, device: CudaDevice | CpuDevice) -> Trace:
    """Trace one training step of a Job on a device, for estimates of other settings.

    Raises:
        UsageError: the Job's functions fail, or its loss is not a scalar.
    """
    from ._step import trace_step as trace  # noqa: PLC0415  importing torch takes seconds

    return trace(job, settings, device, steps=1)


def trace_program(
    device: EmulatedDevice, steps: int, on_end: Callable[[], None], *, boolean: bool = True, stacks: bool = False
) -> LiveTrace:
    """Return the trace of a program that runs in this process as if it had the device.

    Args:
        device: the device to emulate and to trace for.
        steps: how many steps of every optimizer to record.
        on_end: called inside the program after the last one; it doesn't return.
        boolean: the value of a boolean that the program reads from the device.
        stacks: keep the lines of the program that made each allocation, which takes longer.
    """
    from .live import LiveTrace  # noqa: PLC0415  importing torch takes seconds

    return LiveTrace(device, steps, on_end, boolean=boolean, stacks=stacks)
