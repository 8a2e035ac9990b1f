"""Rules about out-of-memory handling."""

from __future__ import annotations

from ._broad_oom_except import BROAD_OOM_EXCEPT
from ._halved_without_accumulation import HALVED_WITHOUT_ACCUMULATION
from ._retry_inside_except import RETRY_INSIDE_EXCEPT

OUT_OF_MEMORY_RULES = (RETRY_INSIDE_EXCEPT, BROAD_OOM_EXCEPT, HALVED_WITHOUT_ACCUMULATION)

__all__ = [
    "BROAD_OOM_EXCEPT",
    "HALVED_WITHOUT_ACCUMULATION",
    "OUT_OF_MEMORY_RULES",
    "RETRY_INSIDE_EXCEPT",
]
