"""Batches of images within a budget of bytes. Imports torch only when a Loader is created."""

from ._batch_reader import BatchReader, ReadBatch
from ._buffers import Batch
from ._loader import Loader
from ._plan import LoaderOptions, LoaderPlan, PlanDecision, plan_loader
from ._report import LoaderMeasurement, LoaderReport
from ._timings import Timings

__all__ = [
    "Batch",
    "BatchReader",
    "Loader",
    "LoaderMeasurement",
    "LoaderOptions",
    "LoaderPlan",
    "LoaderReport",
    "PlanDecision",
    "ReadBatch",
    "Timings",
    "plan_loader",
]
