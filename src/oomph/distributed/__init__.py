"""Processes that train together: votes, heartbeats, and lost ranks."""

from ._control_group import NO_TIMEOUT, ControlGroup, NoControlGroup, is_rank_error

__all__ = ["NO_TIMEOUT", "ControlGroup", "NoControlGroup", "is_rank_error"]
