"""Events to bytes: the allocator's replay, what the peak is made of, and the Prediction. No torch of its own."""

from ._allocator import Allocator, OutOfMemory, Rules
from ._predict import predict, predict_trace
from ._prediction import Origin, Owner, Peak, Prediction, Range
from ._replay import Replay, replay, smallest_cap

__all__ = [
    "Allocator",
    "Origin",
    "OutOfMemory",
    "Owner",
    "Peak",
    "Prediction",
    "Range",
    "Replay",
    "Rules",
    "predict",
    "predict_trace",
    "replay",
    "smallest_cap",
]
