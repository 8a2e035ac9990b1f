"""Planning: settings under which a job fits, each change with its reason and its cost. Pure, no torch."""

from ._allowed_changes import PERMISSIONS, AllowedChanges, read_allowed
from ._micro_batch import MicroBatchEstimate, estimate_micro_batch
from ._plan import Plan, largest_batch, plan
from ._plan_change import PlanChange

__all__ = [
    "PERMISSIONS",
    "AllowedChanges",
    "MicroBatchEstimate",
    "Plan",
    "PlanChange",
    "estimate_micro_batch",
    "largest_batch",
    "plan",
    "read_allowed",
]
