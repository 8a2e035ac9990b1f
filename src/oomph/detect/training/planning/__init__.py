"""The memory plan of a run: its Job, what it needs beyond a step, and smaller networks where nothing fits."""

from ._job import detection_job
from ._plan_training import (
    Placement,
    per_rank_config,
    plan_document,
    plan_training,
    predict_training,
    resolve_budget,
)
from ._smaller_networks import SmallerNetwork, pruned_networks, smaller_sizes

__all__ = [
    "Placement",
    "SmallerNetwork",
    "detection_job",
    "per_rank_config",
    "plan_document",
    "plan_training",
    "predict_training",
    "pruned_networks",
    "resolve_budget",
    "smaller_sizes",
]
