"""Sweeps: grids of settings, one process per cell, and the comparison of what they cost. Imports no torch."""

from ._admission import FreeMemory, read_free_memory
from ._command import CommandResult, CommandTemplate, Metric, command_tasks, parse_metrics
from ._detector import CellForecast, DetectorRun, detector_task, forecast_cells, skipped_cell
from ._front import Point, Spread, Summary, find_front, spread, summarize
from ._grid import Cell, Grid, Value
from ._limits import parse_limits
from ._queue import CellProgress, CellTask, run_cells, run_task
from ._recommendation import Goal, recommend
from ._result import CellResult, Status
from ._results_file import RESULTS_FILE, ResultsFile, SweepHeader, lock_sweep
from ._sweep import SweepResult, sweep
from ._time_budget import TimeBudget
from .on_ray import run_cells_on_ray
from .supervisor import LOG_FILE, CellExplanation, CellOutcome, CellRequest, Limit, Limits, explain_cell

__all__ = [
    "LOG_FILE",
    "RESULTS_FILE",
    "Cell",
    "CellExplanation",
    "CellForecast",
    "CellOutcome",
    "CellProgress",
    "CellRequest",
    "CellResult",
    "CellTask",
    "CommandResult",
    "CommandTemplate",
    "DetectorRun",
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
    "SweepResult",
    "TimeBudget",
    "Value",
    "command_tasks",
    "detector_task",
    "explain_cell",
    "find_front",
    "forecast_cells",
    "lock_sweep",
    "parse_limits",
    "parse_metrics",
    "read_free_memory",
    "recommend",
    "run_cells",
    "run_cells_on_ray",
    "run_task",
    "skipped_cell",
    "spread",
    "summarize",
    "sweep",
]
