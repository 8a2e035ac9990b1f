"""The guard: transactional steps, the ladder, agreement between ranks."""

from ._batch import split
from ._fault import Fault
from ._guard import Guard, guard
from ._options import Options
from ._reduction import BUCKET_BYTES
from ._step_report import Fallback, StepReport
from ._sum import LossSum
from ._transaction import Transaction

__all__ = [
    "BUCKET_BYTES",
    "Fallback",
    "Fault",
    "Guard",
    "LossSum",
    "Options",
    "StepReport",
    "Transaction",
    "guard",
    "split",
]
