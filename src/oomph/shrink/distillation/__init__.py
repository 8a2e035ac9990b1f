"""Training of a small network by a large one."""

from ._detector import distill_detector
from ._job import distill
from ._losses import soft_targets

__all__ = ["distill", "distill_detector", "soft_targets"]
