"""Report of `oomph report`: where the page is, and its data as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ... import document
from ...errors import OomphError, UsageError, quote
from ...files import write_atomically
from ...units import format_size
from .._explain import finding_document
from .._text import body_line, printable
from ._chart import Chart, Event
from ._commands import next_commands
from ._events import run_events
from ._run_data import RunData, load_runs
from ._run_page import RunCharts, run_page
from ._summary import summarize

_STYLES = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}
_GENERATOR = b'<meta name="generator" content="oomph">'
_HEAD_BYTES = 4096  # of a page, which contain the generator
PAGE_FILE = "report.html"


@dataclass(frozen=True)
class RunReport:
    """Report of runs.

    Attributes:
        runs: the runs.
        charts: their charts.
        page: where the page was written; None if it wasn't.
    """

    runs: tuple[RunData, ...]
    charts: RunCharts
    page: Path | None = None

    @classmethod
    def of(cls, paths: Sequence[Path]) -> RunReport:
        """Return the report of run folders and Records.

        Raises:
            UsageError: one of them can't be read.
        """
        runs = load_runs(paths)
        return cls(runs, RunCharts.of(runs))

    def html(self) -> str:
        """Return the page."""
        return run_page(self.runs, self.charts)

    def document(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return {
            "oomph": "report",
            "version": 1,
            "page": None if self.page is None else str(self.page),
            "runs": [_run_document(run) for run in self.runs],
            "charts": [_chart_document(chart) for chart in self.charts.all],
        }

    def render(self, *, plain: bool) -> RenderableType:
        """Return a few lines: the result of each run, and where the page is."""
        del plain
        return Group(*self._lines())

    def _lines(self) -> Iterator[RenderableType]:
        for run in self.runs:
            summary = summarize(run)
            yield Text(f"{printable(run.name)}: {printable(summary.sentence)}", _STYLES[summary.level])
            yield from (body_line(f"{name}: {printable(value)}") for name, value in summary.facts)
        if self.page is not None:
            yield Text(f"The report is in {printable(str(self.page))} ({format_size(self.page.stat().st_size)}).")


def _run_document(run: RunData) -> dict[str, Any]:
    summary = summarize(run)
    return {
        "name": run.name,
        "path": str(run.path),
        "state": summary.state,
        "sentence": summary.sentence,
        "duration": run.duration,
        "facts": dict(summary.facts),
        "memory": {
            "predicted": run.predicted.peak,
            "measured": run.measured_peak,
            "budget": run.predicted.budget,
        },
        "retries": run.retries,
        "plan": None if run.plan is None else run.plan.document(),
        "findings": [{"rank": rank, **finding_document(finding)} for rank, finding in run.findings],
        "events": [_event_document(event) for event in run_events(run)],
        "epochs": [dict(row) for row in run.epochs],
        "data_issues": document.encode(run.issues),
        "commands": [command.text for command in next_commands(run, summary.state)],
    }


def _event_document(event: Event) -> dict[str, Any]:
    return {"seconds": round(event.time, 3), "event": event.label, "text": event.text}


def _chart_document(chart: Chart) -> dict[str, Any]:
    return {
        "name": chart.name,
        "title": chart.title,
        "unit": chart.unit,
        "x": "epoch" if chart.by_epoch else "seconds",
        "limits": {limit.label: limit.value for limit in chart.limits},
        "series": [
            {"label": series.label, "x": [round(at, 3) for at in series.times], "y": list(series.values)}
            for series in chart.series
        ],
    }


def default_page(paths: Sequence[Path]) -> Path:
    """Return where the page of runs goes: into the run folder, beside a Record, or here for several runs."""
    if len(paths) > 1:
        return Path(PAGE_FILE)
    return paths[0] / PAGE_FILE if paths[0].is_dir() else paths[0].with_suffix(".html")


def write_page(report: RunReport, path: Path, *, replace: bool) -> RunReport:
    """Write the page of a report and return the report with it.

    Args:
        report: the report.
        path: the file.
        replace: overwrite a file that is not a page of oomph.

    Raises:
        UsageError: there is another file, or the page can't be written.
    """
    if path.is_dir():
        raise UsageError(f"{quote(str(path))} is a folder", "name a file, such as -o report.html")
    if any(path.exists() and path.samefile(rank.file) for run in report.runs for rank in run.ranks):
        raise UsageError(f"{quote(str(path))} is the Record itself", "name another file with -o")
    if not replace and path.exists() and not _is_page(path):
        raise UsageError(f"{quote(str(path))} exists and is not a page of oomph", "name a file with -o")
    content = report.html().encode("utf-8", "replace")
    try:
        write_atomically(path, lambda file: file.write(content), fsync=False, parents=False)
    except OSError as error:
        raise UsageError(
            f"the page {quote(str(path))} can't be written ({error.strerror})", "name another file with -o"
        ) from None
    return RunReport(report.runs, report.charts, path)


def _is_page(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _GENERATOR in file.read(_HEAD_BYTES)
    except OSError:
        return False


def write_run_page(folder: Path) -> Path:
    """Write the page of a run folder that oomph has just trained, and return its path.

    Raises:
        OomphError: the page can't be written.
    """
    try:
        report = write_page(RunReport.of([folder]), folder / PAGE_FILE, replace=False)
    except (OSError, ImportError) as error:
        raise OomphError(f"the report can't be written ({error})", f"run oomph report {folder}") from None
    assert report.page is not None  # noqa: S101  for the type checker
    return report.page
