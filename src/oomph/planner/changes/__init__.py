"""The changes that a plan can make to settings, one file each. Pure, no torch."""

from ._allocator import ALLOCATOR
from ._change import Change, Context
from ._checkpointing import CHECKPOINTING
from ._memory_format import MEMORY_FORMAT
from ._micro_batches import MICRO_BATCHES
from ._optimizer import OPTIMIZER
from ._precision import PRECISION, fast_precision, slow_precision
from ._size import SIZE, smaller_sizes

# In the order in which a plan describes them.
CHANGES = (ALLOCATOR, PRECISION, MEMORY_FORMAT, OPTIMIZER, SIZE, CHECKPOINTING, MICRO_BATCHES)

__all__ = [
    "ALLOCATOR",
    "CHANGES",
    "CHECKPOINTING",
    "MEMORY_FORMAT",
    "MICRO_BATCHES",
    "OPTIMIZER",
    "PRECISION",
    "SIZE",
    "Change",
    "Context",
    "fast_precision",
    "slow_precision",
    "smaller_sizes",
]
