"""`--html` of `oomph plan`: the plan explorer."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import CannotFit, UsageError, quote
from ...units import parse_size
from ._job import find_job

if TYPE_CHECKING:
    from ...machine import Target
    from ...planner import Plan
    from ...settings import Settings

_MOST_WORKERS = 4


@dataclass(frozen=True)
class ExplorerPage:
    """A page to write.

    Attributes:
        path: where.
        job: the Job, as on the command line.
        target: the device of the plan.
        budget: its memory that may be used, as on the command line.
        quiet: True to show no progress.
    """

    path: Path
    job: str
    target: Target
    budget: str | None
    quiet: bool

    def check(self) -> None:
        """Raise if the page can't be written, before minutes of predictions.

        Raises:
            UsageError: its folder doesn't exist, or it is a folder.
        """
        if self.path.is_dir() or not self.path.absolute().parent.is_dir():
            raise UsageError(f"the page {quote(str(self.path))} can't be written", "name a file in an existing folder")

    def write(self, requested: Settings, result: Plan | CannotFit) -> None:
        """Predict the table and write the page, which starts at the plan, or at the requested settings without one."""
        from ...planner import Plan, build_prediction_table  # noqa: PLC0415
        from ...report import ConsoleProgress, Explorer  # noqa: PLC0415

        plan, problem = (result, None) if isinstance(result, Plan) else (None, result)
        settings = replace(requested, allocator="expandable") if plan is None else plan.settings
        memory = self.target.memory
        budget = memory if self.budget is None else min(parse_size(self.budget), memory)
        with ConsoleProgress(quiet=self.quiet) as console:
            table = build_prediction_table(
                functools.partial(find_job, self.job),
                settings,
                self.target,
                budget=budget if plan is None else plan.budget,
                workers=_workers(),
                progress=lambda done, total: console.on_progress("predicting for the explorer", done, total),
            )
        Explorer(self.job, table, settings, plan, problem).save(self.path)


def _workers() -> int:
    from ...machine import read_machine  # noqa: PLC0415

    return min(max(int(read_machine().cores.usable.known or 1), 1), _MOST_WORKERS)
