"""How long a step takes: each operation limited by arithmetic or by memory traffic, whichever is slower.

Good enough to rank settings, not to bill by: efficiencies are those of large kernels on an H200.
"""

from __future__ import annotations

from ..machine import Target
from ..settings import Settings
from ..trace import Trace, Work

_LAUNCH = 4e-6  # seconds between two kernels at best
_ARITHMETIC = 0.55  # of the peak rate, for matrix products and convolutions
_TRAFFIC = 0.7  # of the peak bandwidth
_MATRIX = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward")


def step_seconds(trace: Trace, target: Target, settings: Settings) -> float:
    """Seconds of the traced step."""
    return sum(_seconds(work, target, settings) for work in trace.work)


def _seconds(work: Work, target: Target, settings: Settings) -> float:
    arithmetic = work.flops / (_rate(work, target, settings) * _ARITHMETIC)
    traffic = work.traffic / (target.bandwidth * _TRAFFIC)
    return max(arithmetic, traffic, _LAUNCH)


def _rate(work: Work, target: Target, settings: Settings) -> float:
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
