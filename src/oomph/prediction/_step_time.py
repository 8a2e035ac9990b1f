"""Step time from a roofline model: each operation is limited by arithmetic or by memory traffic.

Good enough to rank settings, not to predict wall-clock time. The constants were fitted once to 60 settings of three
jobs timed on an H200 (`benchmarks/results/`).
"""

from __future__ import annotations

from ..machine import Target
from ..settings import Settings
from ..trace import OpCost, Trace

_LAUNCH_SECONDS = 4e-6  # shortest time between two kernels
_PRODUCT_EFFICIENCY = 0.7  # fraction of the peak rate that matrix products reach
_CONVOLUTION_EFFICIENCY = 0.5
_BANDWIDTH_EFFICIENCY = 0.7
_CONVERSION_TRAFFIC = {"float32": 4, "float16": 9, "bfloat16": 9}  # factor where cuDNN converts to channels_last
_MATRIX_OPS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")


def step_seconds(trace: Trace, target: Target, settings: Settings) -> float:
    """Return the estimated seconds of the traced step."""
    return sum(_op_seconds(cost, target, settings) for cost in trace.op_costs)


def _op_seconds(cost: OpCost, target: Target, settings: Settings) -> float:
    is_convolution = "convolution" in cost.op
    rate = _peak_rate(cost, target, settings) * (_CONVOLUTION_EFFICIENCY if is_convolution else _PRODUCT_EFFICIENCY)
    is_converted = is_convolution and settings.memory_format == "contiguous"
    traffic = cost.traffic * (_CONVERSION_TRAFFIC.get(cost.dtype, 1) if is_converted else 1)
    return max(cost.flops / rate, traffic / (target.bandwidth * _BANDWIDTH_EFFICIENCY), _LAUNCH_SECONDS)


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
