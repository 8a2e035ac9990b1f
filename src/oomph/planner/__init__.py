"""Settings chosen so that a job fits: moves, each with its reason and its cost. Pure, no torch."""

from ._plan import Move, Plan, largest_batch, plan

__all__ = ["Move", "Plan", "largest_batch", "plan"]
