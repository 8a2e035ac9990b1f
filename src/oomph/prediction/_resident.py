"""Host memory: what training on the processor keeps resident, and what a process that drives a GPU does."""

from __future__ import annotations

from ..trace import StorageKind, Trace
from ..units import MIB
from ._heap import heap_peak
from ._prediction import Estimate, Origin

_SPREAD = 0.1  # how far the heap's replay was off on eleven networks (docs/accuracy.md)
# Library pages touched by the first kernels, generated code, and what torch imports when an optimizer is made.
_FIRST_USE = (25 * MIB, 60 * MIB, 110 * MIB)
# A process that has imported torch, before the first tensor: a CPU build, and a CUDA build with its context.
_IMPORTED = (180 * MIB, 230 * MIB, 400 * MIB)
_WITH_CUDA = (1000 * MIB, 1600 * MIB, 3200 * MIB)


def resident_growth(trace: Trace) -> Estimate:
    """How much training on the processor adds to what the imports take."""
    held = heap_peak(trace)
    low, value, high = _FIRST_USE
    return Estimate(held * (1 - _SPREAD) + low, held + value, held * (1 + _SPREAD) + high, Origin.TRACED)


def whole_process(growth: Estimate) -> Estimate:
    """Resident memory of the whole process that trains on the processor."""
    low, value, high = _IMPORTED
    return Estimate(growth.low + low, growth.value + value, growth.high + high, growth.origin)


def beside_gpu(trace: Trace) -> Estimate:
    """Resident memory of a process that trains on a GPU: the model is built on the host, batches are made there."""
    model = sum(s.size for s in trace.storages if s.kind in {StorageKind.PARAMETER, StorageKind.BUFFER})
    batch = sum(s.size for s in trace.storages if s.kind is StorageKind.INPUT and s.step == 0)
    low, value, high = (base + model + batch for base in _WITH_CUDA)
    return Estimate(low, value, high, Origin.ASSUMED)
