"""Batches from images within a budget of bytes. Torch only where a tensor is made."""

from ._account import LoaderMeasurement, LoadReport
from ._batch import Batch
from ._loader import Loader
from ._order import BatchSampler, BatchSpec, Shard, ShuffledSampler
from ._plan import Decision, LoaderOptions, LoaderPlan, plan_loader
from ._recipe import DecodedImage, ImageRequest, LetterboxSamples, SampleBuilder, Transform
from ._tuning import Timings

__all__ = [
    "Batch",
    "BatchSampler",
    "BatchSpec",
    "Decision",
    "DecodedImage",
    "ImageRequest",
    "LetterboxSamples",
    "LoadReport",
    "Loader",
    "LoaderMeasurement",
    "LoaderOptions",
    "LoaderPlan",
    "SampleBuilder",
    "Shard",
    "ShuffledSampler",
    "Timings",
    "Transform",
    "plan_loader",
]
