"""Settings applied to a model and optimizer, real or fake; each change is reversible."""

from ._allocator import allocator_limit, cap_allocator, cap_allocator_below_spill, configure_allocator
from ._autocast import AUTOCAST_DTYPES, autocast
from ._block_checkpointing import BlockCheckpointing, eager_modules
from ._checkpointing import apply_checkpointing, blocks, checkpoint
from ._conversion import convert_batch, convert_model
from ._fake_quantization import apply_fake_quantization, is_fake_quantized, undo_fake_quantization
from ._live_model import apply_settings
from ._loss_chunks import apply_loss_chunks
from ._module_attributes import attribute_tables, has_attribute_state, is_copied, is_internal, rebind
from ._offload import apply_offload
from ._optimizer_variant import set_variant
from ._patch import Patch
from ._widths import Widths, read_widths, set_widths

__all__ = [
    "AUTOCAST_DTYPES",
    "BlockCheckpointing",
    "Patch",
    "Widths",
    "allocator_limit",
    "apply_checkpointing",
    "apply_fake_quantization",
    "apply_loss_chunks",
    "apply_offload",
    "apply_settings",
    "attribute_tables",
    "autocast",
    "blocks",
    "cap_allocator",
    "cap_allocator_below_spill",
    "checkpoint",
    "configure_allocator",
    "convert_batch",
    "convert_model",
    "eager_modules",
    "has_attribute_state",
    "is_copied",
    "is_fake_quantized",
    "is_internal",
    "read_widths",
    "rebind",
    "set_variant",
    "set_widths",
    "undo_fake_quantization",
]
