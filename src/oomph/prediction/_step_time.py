"""Step time: the GPU works through operations while the CPU launches the next ones, and the slower of them counts.

On the GPU, each operation is limited by arithmetic or by memory traffic (a roofline). Good enough to rank settings, not
to predict wall-clock time. The constants were fitted once to settings of a dozen jobs timed on an H200
(`benchmarks/results/`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..machine import Target
from ..settings import Settings
from ..trace import TO_DEVICE, TO_HOST, OpCost, Trace

# What the CPU takes for one operation, autograd included, more for cuDNN's, and more for what is recomputed.
_LAUNCH_SECONDS, _CUDNN_LAUNCH_SECONDS = 28e-6, 55e-6
_CUDNN_OPS = frozenset({"convolution", "convolution_backward", "native_batch_norm", "native_batch_norm_backward"})
_RECOMPUTED_MODULE_SECONDS, _RECOMPUTED_OP_SECONDS = 1e-3, 35e-6
OVERLAP_EXPONENT = 4  # of the norm that joins both times: where they are alike, neither hides the other completely
_SHORTEST_KERNEL = 2.5e-6
_PRODUCT_EFFICIENCY = 0.62  # fraction of the peak rate that matrix products reach
_CONVOLUTION_EFFICIENCY = 0.33
_MATRIX_BANDWIDTH = 0.37  # fraction of the bandwidth that products and convolutions reach
_OTHER_BANDWIDTH = 0.28  # lower, because normalizations read their inputs more than once
_CONVERSION_TRAFFIC = {"float32": 1.8, "float16": 3, "bfloat16": 3}  # factor where cuDNN converts to channels_last
_LINK_OPS = (TO_HOST, TO_DEVICE)
_MATRIX_OPS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")


def step_seconds(trace: Trace, target: Target, settings: Settings) -> float:
    """Return the estimated seconds of the traced step."""
    on_device = device_seconds(trace.op_costs, target, settings)
    return on_device if target.is_cpu else overlapped_seconds(on_device, launch_seconds(trace.op_costs))


def op_seconds(trace: Trace, target: Target, settings: Settings) -> list[float]:
    """Return the share of each operation in the estimated seconds of the step."""
    shares = [
        overlapped_seconds(_op_seconds(cost, target, settings, 1.0), 0 if target.is_cpu else launch_seconds([cost]))
        for cost in trace.op_costs
    ]
    scale = step_seconds(trace, target, settings) / (sum(shares) or 1)
    return [share * scale for share in shares]


def overlapped_seconds(on_device: float, launching: float) -> float:
    """Return the seconds of work that the CPU launches while the device runs it."""
    return float((on_device**OVERLAP_EXPONENT + launching**OVERLAP_EXPONENT) ** (1 / OVERLAP_EXPONENT))


def launch_seconds(costs: Iterable[OpCost]) -> float:
    """Return the seconds that the CPU takes to launch operations on a GPU."""
    return sum(_CUDNN_LAUNCH_SECONDS if cost.op in _CUDNN_OPS else _LAUNCH_SECONDS for cost in costs)


def recompute_launch_seconds(costs: Sequence[OpCost]) -> float:
    """Return the seconds that the CPU takes to recompute a module with these operations."""
    return _RECOMPUTED_MODULE_SECONDS + len(costs) * _RECOMPUTED_OP_SECONDS + launch_seconds(costs)


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
    bandwidth = target.bandwidth * (_MATRIX_BANDWIDTH if _is_product(cost) else _OTHER_BANDWIDTH)
    return max(cost.flops / rate * scale, traffic / bandwidth * scale, _SHORTEST_KERNEL)


def _is_product(cost: OpCost) -> bool:
    return cost.op in _MATRIX_OPS or "attention" in cost.op


def _peak_rate(cost: OpCost, target: Target, settings: Settings) -> float:
    rates = target.rates
    fp32 = rates.fp32 or 1e12
    if not _is_product(cost):
        return fp32
    if cost.dtype == "float16":
        return rates.fp16 or fp32
    if cost.dtype == "bfloat16":
        return rates.bf16 or fp32
    # By torch's defaults, convolutions in fp32 run on tensor cores (tf32); matrix products do so only on request.
    uses_tf32 = "convolution" in cost.op or settings.precision == "tf32"
    return (rates.tf32 or fp32) if uses_tf32 else fp32
