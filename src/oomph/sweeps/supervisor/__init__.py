"""The supervisor of a cell: a process that runs its command, measures and limits it, and leaves nothing running."""

from ._cell_files import LOG_FILE, CellOutcome, CellRequest, Limit, Limits, read_outcome, write_request
from ._explain_cell import CellExplanation, explain_cell, last_line
from ._processes import CELL_MARK, kill_cell

__all__ = [
    "CELL_MARK",
    "LOG_FILE",
    "CellExplanation",
    "CellOutcome",
    "CellRequest",
    "Limit",
    "Limits",
    "explain_cell",
    "kill_cell",
    "last_line",
    "read_outcome",
    "write_request",
]
