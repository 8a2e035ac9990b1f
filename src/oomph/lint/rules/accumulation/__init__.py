"""Rules about gradient accumulation."""

from __future__ import annotations

from ._accumulation_counter import ACCUMULATION_COUNTER
from ._clip_without_unscale import CLIP_WITHOUT_UNSCALE
from ._grad_never_zeroed import GRAD_NEVER_ZEROED
from ._last_group_not_stepped import LAST_GROUP_NOT_STEPPED
from ._loss_divided_twice import LOSS_DIVIDED_TWICE
from ._loss_not_divided import LOSS_NOT_DIVIDED
from ._scheduler_per_micro_batch import SCHEDULER_PER_MICRO_BATCH
from ._zeroed_while_accumulating import GRAD_ZEROED_WHILE_ACCUMULATING

ACCUMULATION_RULES = (
    GRAD_ZEROED_WHILE_ACCUMULATING,
    GRAD_NEVER_ZEROED,
    LAST_GROUP_NOT_STEPPED,
    ACCUMULATION_COUNTER,
    LOSS_NOT_DIVIDED,
    LOSS_DIVIDED_TWICE,
    CLIP_WITHOUT_UNSCALE,
    SCHEDULER_PER_MICRO_BATCH,
)

__all__ = [
    "ACCUMULATION_COUNTER",
    "ACCUMULATION_RULES",
    "CLIP_WITHOUT_UNSCALE",
    "GRAD_NEVER_ZEROED",
    "GRAD_ZEROED_WHILE_ACCUMULATING",
    "LAST_GROUP_NOT_STEPPED",
    "LOSS_DIVIDED_TWICE",
    "LOSS_NOT_DIVIDED",
    "SCHEDULER_PER_MICRO_BATCH",
]
