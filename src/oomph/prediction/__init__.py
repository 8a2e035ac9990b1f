"""Predictions: replay of a trace through allocator models, the composition of the peak, and calibration. No torch."""

from ._allocator import Allocator, OutOfMemory
from ._calibration import Calibration, Comparison, calibrate, load_calibration, save_comparison
from ._host_memory import rss_growth_after_planning
from ._predict import predict, predict_trace, trace_device
from ._prediction import Estimate, Origin, Owner, Peak, Prediction, update_bytes
from ._replay import Replay, replay, smallest_cap
from ._step_time import (
    OVERLAP_EXPONENT,
    device_seconds,
    launch_seconds,
    overlapped_seconds,
    recompute_launch_seconds,
)
from .timeline import TimelineFiles, chrome_trace, memory_snapshot

__all__ = [
    "OVERLAP_EXPONENT",
    "Allocator",
    "Calibration",
    "Comparison",
    "Estimate",
    "Origin",
    "OutOfMemory",
    "Owner",
    "Peak",
    "Prediction",
    "Replay",
    "TimelineFiles",
    "calibrate",
    "chrome_trace",
    "device_seconds",
    "launch_seconds",
    "load_calibration",
    "memory_snapshot",
    "overlapped_seconds",
    "predict",
    "predict_trace",
    "recompute_launch_seconds",
    "replay",
    "rss_growth_after_planning",
    "save_comparison",
    "smallest_cap",
    "trace_device",
    "update_bytes",
]
