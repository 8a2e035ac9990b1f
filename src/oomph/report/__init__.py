"""One story for every output: terminal, pipe, JSON. No torch."""

from ._catalogue import CloudList, GpuList, OneGpu
from ._doctor import DoctorReport
from ._emit import Report, emit
from ._explain import ExplainReport
from ._live import LiveView
from ._predict import PredictReport
from ._text import printable
from ._train import TrainReport, TrainTeller
from ._watch import WatchView

__all__ = [
    "CloudList",
    "DoctorReport",
    "ExplainReport",
    "GpuList",
    "LiveView",
    "OneGpu",
    "PredictReport",
    "Report",
    "TrainReport",
    "TrainTeller",
    "WatchView",
    "emit",
    "printable",
]
