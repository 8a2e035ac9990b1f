"""The explorer's table: predictions for many settings from few traces. No torch at import."""

from ._build import build_prediction_table
from ._table import PEAK_KINDS, PredictionTable, TableChoice, TableEstimate, TablePosition

__all__ = [
    "PEAK_KINDS",
    "PredictionTable",
    "TableChoice",
    "TableEstimate",
    "TablePosition",
    "build_prediction_table",
]
