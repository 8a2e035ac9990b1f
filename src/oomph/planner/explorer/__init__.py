"""The explorer's table: predictions for many settings from few traces. No torch at import."""

from ._build import build_table
from ._choices import PLANNED_MODULES
from ._table import KINDS, Axis, Choice, Device, Position, PositionEstimate, PredictionTable

__all__ = [
    "KINDS",
    "PLANNED_MODULES",
    "Axis",
    "Choice",
    "Device",
    "Position",
    "PositionEstimate",
    "PredictionTable",
    "build_table",
]
