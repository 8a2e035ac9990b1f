"""The cause of every kind of failure: title, why, and general advice."""

from ._causes import CAUSES

__all__ = ["CAUSES"]
