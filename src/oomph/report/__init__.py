"""One story for every output: terminal, pipe, JSON. No torch."""

from ._catalog import CloudList, GpuList, OneGpu
from ._detect import DetectReport, ScoresReport
from ._doctor import DoctorReport
from ._emit import Report, emit
from ._explain import ExplainReport
from ._live import LiveView
from ._predict import PredictReport
from ._text import printable
from ._train import ConsoleProgress, TrainReport
from ._watch import WatchView

__all__ = [
    "CloudList",
    "ConsoleProgress",
    "DetectReport",
    "DoctorReport",
    "ExplainReport",
    "GpuList",
    "LiveView",
    "OneGpu",
    "PredictReport",
    "Report",
    "ScoresReport",
    "TrainReport",
    "WatchView",
    "emit",
    "printable",
]
