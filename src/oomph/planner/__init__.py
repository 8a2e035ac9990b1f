"""Settings chosen so that a job fits: moves, each with its reason and its cost. Pure, no torch."""

from ._leeway import ALLOWED, AllowedChanges, read_allowed
from ._move import PlanChange
from ._plan import Plan, largest_batch, plan

__all__ = ["ALLOWED", "AllowedChanges", "Plan", "PlanChange", "largest_batch", "plan", "read_allowed"]
