"""How long a step takes: each operation limited by arithmetic or by memory traffic, whichever is slower.

Good enough to rank settings, not to bill by. The constants were chosen once on 60 settings of three jobs timed on an
H200 (`benchmarks/results/`).
"""

from __future__ import annotations

from ..machine import Target
from ..settings import Settings
from ..trace import OpCost, Trace

_LAUNCH = 4e-6  # seconds between two kernels at best
_PRODUCT = 0.7  # of the peak rate, for matrix products
_CONVOLUTION = 0.5  # and for convolutions
_TRAFFIC = 0.7  # of the peak bandwidth
_CONVERTED = {"float32": 4, "float16": 9, "bfloat16": 9}  # times the traffic where cuDNN converts to channels_last
_MATRIX = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")


def step_seconds(trace: Trace, target: Target, settings: Settings) -> float:
    """Seconds of the traced step."""
    return sum(_seconds(work, target, settings) for work in trace.work)


def _seconds(work: OpCost, target: Target, settings: Settings) -> float:
    convolution = "convolution" in work.op
    rate = _rate(work, target, settings) * (_CONVOLUTION if convolution else _PRODUCT)
    converted = convolution and settings.memory_format == "contiguous"
    traffic = work.traffic * (_CONVERTED.get(work.dtype, 1) if converted else 1)
    return max(work.flops / rate, traffic / (target.bandwidth * _TRAFFIC), _LAUNCH)


def _rate(work: OpCost, target: Target, settings: Settings) -> float:
    rates = target.rates
    plain = rates.fp32 or 1e12
    if not (work.op in _MATRIX or "attention" in work.op):
        return plain
    if work.dtype == "float16":
        return rates.fp16 or plain
    if work.dtype == "bfloat16":
        return rates.bf16 or plain
    # Convolutions take tensor cores for fp32 by torch's default, matrix products only if asked.
    tensor_cores = "convolution" in work.op or settings.precision == "tf32"
    return (rates.tf32 or plain) if tensor_cores else plain
