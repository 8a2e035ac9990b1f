"""The guard: transactional steps, the ladder, agreement between ranks."""

from ._batch import split
from ._fault import Fault
from ._guard import Guard, guard
from ._options import Options
from ._reduction import BLOCK
from ._step_report import Rung, StepReport
from ._sum import Sum
from ._transaction import Transaction

__all__ = ["BLOCK", "Fault", "Guard", "Options", "Rung", "StepReport", "Sum", "Transaction", "guard", "split"]
