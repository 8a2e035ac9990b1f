"""Batches of images within a budget of bytes. Imports torch only when a Loader is created."""

from ._buffers import Batch
from ._loader import Loader
from ._plan import LoaderOptions, LoaderPlan, PlanDecision, plan_loader
from ._report import LoaderMeasurement, LoaderReport
from ._timings import Timings

__all__ = [
    "Batch",
    "Loader",
    "LoaderMeasurement",
    "LoaderOptions",
    "LoaderPlan",
    "LoaderReport",
    "PlanDecision",
    "Timings",
    "plan_loader",
]
