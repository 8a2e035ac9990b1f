"""Settings put onto a model and optimizer, live or fake; each change can be undone."""

from ._allocator import allocator_limit, cap_allocator, cap_allocator_below_spill
from ._checkpointing import blocks, checkpoint
from ._layout import convert_batch, convert_model
from ._patch import Patch
from ._precision import AUTOCAST_DTYPES, autocast
from ._variant import set_variant

__all__ = [
    "AUTOCAST_DTYPES",
    "Patch",
    "allocator_limit",
    "autocast",
    "blocks",
    "cap_allocator",
    "cap_allocator_below_spill",
    "checkpoint",
    "convert_batch",
    "convert_model",
    "set_variant",
]
