"""The guard: training steps as transactions that retry with less memory, alone or on several ranks."""

from ..batch import split_batch
from ..losses import LossSum
from ._caught_oom import CaughtOom, free_memory
from ._config import as_tuple, check_options
from ._guard import Guard, guard
from ._planned import record_plan
from ._step_report import Fallback, StepReport
from ._transaction import Transaction
from .ranks import BUCKET_BYTES
from .snapshots import PlainAttributeSnapshot, RngSnapshot

__all__ = [
    "BUCKET_BYTES",
    "CaughtOom",
    "Fallback",
    "Guard",
    "LossSum",
    "PlainAttributeSnapshot",
    "RngSnapshot",
    "StepReport",
    "Transaction",
    "as_tuple",
    "check_options",
    "free_memory",
    "guard",
    "record_plan",
    "split_batch",
]
