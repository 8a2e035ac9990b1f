"""Processes that train together: ranks, votes, heartbeats, and lost ranks."""

from ._collectives import is_rank_error
from ._context import SINGLE, DistContext, init_distributed
from ._control_group import ControlGroup, NoControlGroup

__all__ = ["SINGLE", "ControlGroup", "DistContext", "NoControlGroup", "init_distributed", "is_rank_error"]
