"""Reports of the commands, for the terminal, a pipe or JSON. No torch."""

from ._catalog import CloudMachineList, GpuDetails, GpuList
from ._command import CommandReport
from ._detect import DetectReport, ScoresReport
from ._doctor import DoctorReport
from ._emit import Report, emit
from ._explain import ExplainReport
from ._plan import PlanReport, WhichGpuReport
from ._predict import PredictReport
from ._shrink import ShrinkReport
from ._shrink_compare import CompareReport
from ._shrink_compare_plot import compare_plot, save_compare_plot
from ._sweep import ForecastReport, SweepReport
from ._sweep_plot import save_sweep_plot, sweep_plot
from ._sweep_progress import SweepProgress
from ._text import printable
from ._train import ConsoleProgress, TrainReport
from .explorer import Explorer
from .lint import LintReport, LintRuleList
from .notebook import in_notebook, to_html
from .run import RunReport, default_page, write_page, write_run_page
from .watch import ScreenExit, WatchLines, can_show_screen, run_screen

__all__ = [
    "CloudMachineList",
    "CommandReport",
    "CompareReport",
    "ConsoleProgress",
    "DetectReport",
    "DoctorReport",
    "ExplainReport",
    "Explorer",
    "ForecastReport",
    "GpuDetails",
    "GpuList",
    "LintReport",
    "LintRuleList",
    "PlanReport",
    "PredictReport",
    "Report",
    "RunReport",
    "ScoresReport",
    "ScreenExit",
    "ShrinkReport",
    "SweepProgress",
    "SweepReport",
    "TrainReport",
    "WatchLines",
    "WhichGpuReport",
    "can_show_screen",
    "compare_plot",
    "default_page",
    "emit",
    "in_notebook",
    "printable",
    "run_screen",
    "save_compare_plot",
    "save_sweep_plot",
    "sweep_plot",
    "to_html",
    "write_page",
    "write_run_page",
]
