"""Flags of `oomph sweep`, and the two kinds of sweeps that they describe."""

from ._flags import Flags
from ._kinds import SweepContext, SweepRequest

__all__ = ["Flags", "SweepContext", "SweepRequest"]
