"""The changes that a plan can make to settings, one file each. Pure, no torch."""

from ._allocator import ALLOCATOR
from ._change import Change, Context
from ._checkpointing import CHECKPOINTING
from ._eight_bit import EIGHT_BIT
from ._loss_chunks import LOSS_CHUNKS
from ._memory_format import MEMORY_FORMAT
from ._micro_batches import MICRO_BATCHES
from ._offload import OFFLOAD, offloaded
from ._optimizer import OPTIMIZER
from ._precision import PRECISION, fast_precision, slow_precision
from ._size import SIZE, smaller_sizes

# In the order in which a plan describes them.
CHANGES = (
    ALLOCATOR,
    PRECISION,
    MEMORY_FORMAT,
    OPTIMIZER,
    LOSS_CHUNKS,
    EIGHT_BIT,
    SIZE,
    OFFLOAD,
    CHECKPOINTING,
    MICRO_BATCHES,
)

__all__ = [
    "ALLOCATOR",
    "CHANGES",
    "CHECKPOINTING",
    "EIGHT_BIT",
    "LOSS_CHUNKS",
    "MEMORY_FORMAT",
    "MICRO_BATCHES",
    "OFFLOAD",
    "OPTIMIZER",
    "PRECISION",
    "SIZE",
    "Change",
    "Context",
    "fast_precision",
    "offloaded",
    "slow_precision",
    "smaller_sizes",
]
