"""One story for every output: terminal, pipe, JSON. No torch."""

from ._catalogue import CloudList, GpuList, OneGpu
from ._doctor import DoctorReport
from ._emit import Report, emit
from ._predict import PredictReport
from ._text import printable

__all__ = ["CloudList", "DoctorReport", "GpuList", "OneGpu", "PredictReport", "Report", "emit", "printable"]
