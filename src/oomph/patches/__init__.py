"""Settings put onto a model and optimizer, live or fake; each change can be undone."""

from ._change import Change
from ._checkpointing import blocks, checkpoint
from ._layout import convert_batch, convert_model
from ._variant import set_variant

__all__ = ["Change", "blocks", "checkpoint", "convert_batch", "convert_model", "set_variant"]
