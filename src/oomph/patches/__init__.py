"""Settings put onto a model and optimizer, live or fake; each change can be undone."""

from ._checkpointing import blocks, checkpoint
from ._layout import convert_batch, convert_model
from ._patch import Patch
from ._precision import AUTOCAST_DTYPES, autocast
from ._variant import set_variant

__all__ = [
    "AUTOCAST_DTYPES",
    "Patch",
    "autocast",
    "blocks",
    "checkpoint",
    "convert_batch",
    "convert_model",
    "set_variant",
]
