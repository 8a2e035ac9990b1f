"""Host memory: RSS of training on the CPU, and of a process that trains on a GPU."""

from __future__ import annotations

from dataclasses import replace

from ..trace import StorageKind, Trace
from ..units import MIB
from ._glibc_heap import heap_peak
from ._prediction import Estimate, Origin

_HEAP_ERROR = 0.1  # the heap replay's largest relative error on eleven networks
# (low, value, high) of pages that the first kernels touch, and of generated code.
_FIRST_KERNELS = (10 * MIB, 35 * MIB, 65 * MIB)
# (low, value, high) of torch's imports for the first optimizer.
_OPTIMIZER_IMPORTS = (15 * MIB, 25 * MIB, 45 * MIB)
# (low, value, high) of a process after importing torch: a CPU build, and a CUDA build with its context.
_CPU_PROCESS = (180 * MIB, 230 * MIB, 400 * MIB)
_CUDA_PROCESS = (1000 * MIB, 1600 * MIB, 3200 * MIB)


def rss_growth(trace: Trace) -> Estimate:
    """Return the growth of RSS over the imports when training on the CPU."""
    heap = heap_peak(trace)
    low, value, high = (sum(sizes) for sizes in zip(_FIRST_KERNELS, _OPTIMIZER_IMPORTS, strict=True))
    return Estimate(heap * (1 - _HEAP_ERROR) + low, heap + value, heap * (1 + _HEAP_ERROR) + high, Origin.TRACED)


def rss_growth_after_planning(growth: Estimate) -> Estimate:
    """Return the growth of RSS in a process that has predicted a step, which made the imports for an optimizer."""
    low, value, high = _OPTIMIZER_IMPORTS
    return replace(growth, low=growth.low - low, value=growth.value - value, high=growth.high - high)


def cpu_process_rss(growth: Estimate) -> Estimate:
    """Return the RSS of a process that trains on the CPU."""
    low, value, high = _CPU_PROCESS
    return Estimate(growth.low + low, growth.value + value, growth.high + high, growth.origin)


def gpu_process_rss(trace: Trace) -> Estimate:
    """Return the RSS of a process that trains on a GPU: model and batches as built there, and offloaded activations."""
    model = sum(s.size for s in trace.storages if s.kind in {StorageKind.PARAMETER, StorageKind.BUFFER})
    batch = sum(s.size for s in trace.storages if s.kind is StorageKind.INPUT and s.step == 0)
    low, value, high = (base + model + batch + trace.pinned for base in _CUDA_PROCESS)
    return Estimate(low, value, high, Origin.ASSUMED)
