"""Sweeps: grids of settings, one process per cell, and the comparison of what they cost. Imports no torch."""

from ._admission import FreeMemory, read_free_memory
from ._cell_files import LOG_FILE, CellOutcome, CellRequest, Limit, Limits
from ._command import CommandResult, CommandTemplate, Metric, command_tasks, parse_metrics
from ._explain_cell import CellExplanation, explain_cell
from ._front import Point, Spread, Summary, find_front, spread, summarize
from ._grid import Cell, Grid, Value
from ._queue import CellProgress, CellTask, run_cells, run_task
from ._ray_queue import run_cells_on_ray
from ._recommendation import Goal, recommend
from ._result import CellResult, Status
from ._results_file import RESULTS_FILE, ResultsFile, SweepHeader, lock_sweep

__all__ = [
    "LOG_FILE",
    "RESULTS_FILE",
    "Cell",
    "CellExplanation",
    "CellOutcome",
    "CellProgress",
    "CellRequest",
    "CellResult",
    "CellTask",
    "CommandResult",
    "CommandTemplate",
    "FreeMemory",
    "Goal",
    "Grid",
    "Limit",
    "Limits",
    "Metric",
    "Point",
    "ResultsFile",
    "Spread",
    "Status",
    "Summary",
    "SweepHeader",
    "Value",
    "command_tasks",
    "explain_cell",
    "find_front",
    "lock_sweep",
    "parse_metrics",
    "read_free_memory",
    "recommend",
    "run_cells",
    "run_cells_on_ray",
    "run_task",
    "spread",
    "summarize",
]
