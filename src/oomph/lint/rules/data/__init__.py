"""Rules about data loading."""

from __future__ import annotations

from ._dataset_in_memory import DATASET_IN_MEMORY
from ._float_on_host import FLOAT_ON_HOST
from ._loader_replaced import LOADER_REPLACED
from ._pin_without_non_blocking import PIN_WITHOUT_NON_BLOCKING
from ._prefetch_over_budget import PREFETCH_OVER_BUDGET
from ._ragged_default_collate import RAGGED_DEFAULT_COLLATE
from ._resize_after_full_decode import RESIZE_AFTER_FULL_DECODE
from ._train_without_shuffle import TRAIN_WITHOUT_SHUFFLE
from ._transform_per_item import TRANSFORM_PER_ITEM
from ._workers_without_main_guard import WORKERS_WITHOUT_MAIN_GUARD

DATA_RULES = (
    DATASET_IN_MEMORY,
    FLOAT_ON_HOST,
    LOADER_REPLACED,
    PIN_WITHOUT_NON_BLOCKING,
    PREFETCH_OVER_BUDGET,
    RAGGED_DEFAULT_COLLATE,
    RESIZE_AFTER_FULL_DECODE,
    TRAIN_WITHOUT_SHUFFLE,
    TRANSFORM_PER_ITEM,
    WORKERS_WITHOUT_MAIN_GUARD,
)

__all__ = [
    "DATASET_IN_MEMORY",
    "DATA_RULES",
    "FLOAT_ON_HOST",
    "LOADER_REPLACED",
    "PIN_WITHOUT_NON_BLOCKING",
    "PREFETCH_OVER_BUDGET",
    "RAGGED_DEFAULT_COLLATE",
    "RESIZE_AFTER_FULL_DECODE",
    "TRAIN_WITHOUT_SHUFFLE",
    "TRANSFORM_PER_ITEM",
    "WORKERS_WITHOUT_MAIN_GUARD",
]
