"""Events to bytes: the allocator's replay, what the peak is made of, and the Prediction. No torch of its own."""

from ._allocator import Allocator, OutOfMemory, Rules
from ._calibration import Calibration, Comparison, calibrated, load_calibration, remember
from ._predict import predict, predict_trace
from ._prediction import Estimate, Origin, Owner, Peak, Prediction
from ._replay import Replay, replay, smallest_cap

__all__ = [
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
    "Rules",
    "calibrated",
    "load_calibration",
    "predict",
    "predict_trace",
    "remember",
    "replay",
    "smallest_cap",
]
