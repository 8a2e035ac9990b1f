"""Step time: the GPU works through operations while the CPU launches the next ones, and the slower of them counts.

On the GPU, each operation is limited by arithmetic or by memory traffic (a roofline). Good enough to rank settings, not
to predict wall-clock time. The constants were fitted once to settings of a dozen jobs timed on an H200
(`benchmarks/results/`).
"""

from __future__ import annotations

from collections.abc import Iterable

from ..machine import Target
from ..settings import Settings
from ..trace import TO_DEVICE, TO_HOST, OpCost, Trace

_LAUNCH_SECONDS = 7.5e-6  # that the CPU takes for one operation, its autograd included
_RECOMPUTE_SECONDS = 0.8e-3  # that the CPU takes for a checkpointed module beside its operations
_OVERLAP = 4  # exponent of the norm that joins both times: where they are alike, neither hides the other completely
_SHORTEST_KERNEL = 2.5e-6
_PRODUCT_EFFICIENCY = 0.7  # fraction of the peak rate that matrix products reach
_CONVOLUTION_EFFICIENCY = 0.5
_BANDWIDTH_EFFICIENCY = 0.7
_CONVERSION_TRAFFIC = {"float32": 4, "float16": 9, "bfloat16": 9}  # factor where cuDNN converts to channels_last
_LINK_OPS = (TO_HOST, TO_DEVICE)
_MATRIX_OPS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")


def step_seconds(trace: Trace, target: Target, settings: Settings) -> float:
    """Return the estimated seconds of the traced step."""
    recomputed = len(settings.checkpointing) if isinstance(settings.checkpointing, tuple) else 0
    return overlapped_seconds(
        device_seconds(trace.op_costs, target, settings), launch_seconds(len(trace.op_costs), recomputed, target)
    )


def overlapped_seconds(on_device: float, launching: float) -> float:
    """Return the seconds of work that the CPU launches while the device runs it."""
    return float((on_device**_OVERLAP + launching**_OVERLAP) ** (1 / _OVERLAP))


def launch_seconds(operations: int, recomputed: int, target: Target) -> float:
    """Return the seconds that the CPU takes to launch operations, some of them in recomputed modules."""
    return 0.0 if target.is_cpu else operations * _LAUNCH_SECONDS + recomputed * _RECOMPUTE_SECONDS


def device_seconds(costs: Iterable[OpCost], target: Target, settings: Settings, scale: float = 1.0) -> float:
    """Return the seconds that operations take on the device.

    Args:
        costs: the operations.
        target: the device.
        settings: precision and memory format.
        scale: factor of the arithmetic and the traffic, for another batch than the traced one.
    """
    return sum(_op_seconds(cost, target, settings, scale) for cost in costs)


def _op_seconds(cost: OpCost, target: Target, settings: Settings, scale: float) -> float:
    if cost.op in _LINK_OPS:
        return cost.traffic * scale / target.link
    is_convolution = "convolution" in cost.op
    rate = _peak_rate(cost, target, settings) * (_CONVOLUTION_EFFICIENCY if is_convolution else _PRODUCT_EFFICIENCY)
    is_converted = is_convolution and settings.memory_format == "contiguous"
    traffic = cost.traffic * (_CONVERSION_TRAFFIC.get(cost.dtype, 1) if is_converted else 1)
    seconds = max(cost.flops / rate, traffic / (target.bandwidth * _BANDWIDTH_EFFICIENCY)) * scale
    return max(seconds, _SHORTEST_KERNEL)


def _peak_rate(cost: OpCost, target: Target, settings: Settings) -> float:
    rates = target.rates
    fp32 = rates.fp32 or 1e12
    if not (cost.op in _MATRIX_OPS or "attention" in cost.op):
        return fp32
    if cost.dtype == "float16":
        return rates.fp16 or fp32
    if cost.dtype == "bfloat16":
        return rates.bf16 or fp32
    # By torch's defaults, convolutions in fp32 run on tensor cores (tf32); matrix products do so only on request.
    uses_tf32 = "convolution" in cost.op or settings.precision == "tf32"
    return (rates.tf32 or fp32) if uses_tf32 else fp32
