"""Batches from images within a budget of bytes. Torch only where a tensor is made."""

from ._account import LoadReport, Measured
from ._batch import Batch
from ._loader import Loader
from ._order import Order, Planned, Share, Shuffled
from ._plan import Decision, HostOptions, HostPlan, plan_host
from ._recipe import Piece, Recipe, Transform, Want, Whole
from ._tuning import Pace

__all__ = [
    "Batch",
    "Decision",
    "HostOptions",
    "HostPlan",
    "LoadReport",
    "Loader",
    "Measured",
    "Order",
    "Pace",
    "Piece",
    "Planned",
    "Recipe",
    "Share",
    "Shuffled",
    "Transform",
    "Want",
    "Whole",
    "plan_host",
]
