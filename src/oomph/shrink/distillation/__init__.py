"""Training of a small network by a large one."""

from ._job import distill
from ._losses import soft_targets

__all__ = ["distill", "soft_targets"]
