"""Batches in micro-batches with the gradient of the whole batch: what is computed, how it is split, and its check."""

from ._loss import LossAccumulator, accumulation_weights, merge_grads
from ._metrics import MetricFunction, Metrics
from ._micro_batches import ForwardMode, MicroBatchRunner, Work
from ._objective import Objective
from ._split_policy import SplitPolicy
from ._split_rule import SplitCheck, SplitRule
from ._two_passes import TwoPasses

__all__ = [
    "ForwardMode",
    "LossAccumulator",
    "MetricFunction",
    "Metrics",
    "MicroBatchRunner",
    "Objective",
    "SplitCheck",
    "SplitPolicy",
    "SplitRule",
    "TwoPasses",
    "Work",
    "accumulation_weights",
    "merge_grads",
]
