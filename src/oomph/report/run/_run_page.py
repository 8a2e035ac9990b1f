"""The page of one or several runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ... import __version__
from ...failures import Finding
from ...units import format_size
from ..page import PageFigure, PageTable, render_page
from ._chart import Chart, draw, thin_charts, time_unit
from ._commands import Command, next_commands
from ._events import events_of, run_events
from ._memory_charts import gpu_charts, ram_charts
from ._peak_chart import REST, largest_parts, peak_figure
from ._pictures import Picture, embed
from ._plan_tables import changes_table, plan_sentences, setting_pairs, settings_table
from ._run_data import RunData
from ._step_charts import step_charts
from ._summary import Summary, summarize
from ._training_charts import training_charts

_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class FindingText:
    """A problem of a run, as `oomph explain` says it."""

    title: str
    evidence: str
    why: tuple[str, ...]
    fix: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A part of a section: what one run has to show there."""

    title: str = ""
    sentences: tuple[str, ...] = ()
    tables: tuple[PageTable, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    findings: tuple[FindingText, ...] = ()
    pictures: tuple[Picture, ...] = ()
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True)
class Section:
    """A section of the page, with its id and heading."""

    name: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class RunCharts:
    """All line charts of a page, with at most 4,000 points in a series."""

    gpu: tuple[Chart, ...]
    ram: tuple[Chart, ...]
    steps: tuple[Chart, ...]
    training: tuple[Chart, ...]

    @classmethod
    def of(cls, runs: Sequence[RunData]) -> RunCharts:
        """Return the charts of runs."""
        groups = [tuple(make(runs)) for make in (gpu_charts, ram_charts, step_charts, training_charts)]
        thinned = iter(thin_charts([chart for group in groups for chart in group]))
        return cls(*(tuple(next(thinned) for _ in group) for group in groups))

    @property
    def all(self) -> tuple[Chart, ...]:
        """The charts in the order of the page."""
        return self.gpu + self.ram + self.steps + self.training


def run_page(runs: Sequence[RunData], charts: RunCharts) -> str:
    """Return the page of runs as HTML."""
    summaries = [summarize(run) for run in runs]
    names = ", ".join(run.name for run in runs)
    return render_page(
        "run.html",
        folder=_FOLDER,
        title=f"Run {names}" if len(runs) == 1 else f"Runs {names}",
        summaries=list(zip(runs, summaries, strict=True)),
        comparison=comparison_table(runs, summaries) if len(runs) > 1 else None,
        sections=[section for section in _sections(runs, summaries, charts) if section.blocks],
        written=time.strftime("%Y-%m-%d %H:%M:%S"),
        version=__version__,
    )


def _sections(runs: Sequence[RunData], summaries: Sequence[Summary], charts: RunCharts) -> Iterator[Section]:
    named = len(runs) > 1
    yield Section("plan", "Plan", tuple(_plan_block(run, named=named) for run in runs))
    if any(not run.is_empty for run in runs):
        yield from _chart_sections(runs, charts)
    yield Section("events", "What happened", tuple(_events_block(run, named=named) for run in runs))
    yield Section("composition", "Composition of the peak", tuple(_peak_blocks(runs)))
    yield Section("training", "Training", (_training_block(runs, charts.training),))
    yield Section("pictures", "Pictures", tuple(_picture_blocks(runs)))
    yield Section("data", "Data", tuple(_data_blocks(runs)))
    blocks = tuple(
        Block(run.name if named else "", commands=tuple(next_commands(run, summary.state)))
        for run, summary in zip(runs, summaries, strict=True)
    )
    yield Section("next", "Next steps", blocks)


def _chart_sections(runs: Sequence[RunData], charts: RunCharts) -> Iterator[Section]:
    no_gpu = "No GPU was seen, so there is no chart of GPU memory."
    yield Section("gpu", "GPU memory", (_chart_block(runs, charts.gpu, no_gpu),))
    missing = [text for name, text in _UNUSED if not any(chart.name == name for chart in charts.ram)]
    yield Section("host", "Host memory", (_chart_block(runs, charts.ram, *missing, when_empty=False),))
    yield Section("steps", "Steps", (_chart_block(runs, charts.steps, "The Record has no training steps."),))


def _training_block(runs: Sequence[RunData], charts: Sequence[Chart]) -> Block:
    block = _chart_block(runs, charts, "There are no losses and no scores.")
    without = [run.name for run in runs if not run.epochs] if any(run.epochs for run in runs) else []
    missing = tuple(f"{name} has no results.csv, so its losses are not shown." for name in without)
    return replace(block, sentences=(*block.sentences, *missing))


_UNUSED = (
    ("ram", "The Record has no RAM of the process."),
    ("swap", "No swap was used."),
    ("shm", "Shared memory (/dev/shm) was not used."),
)


def _chart_block(runs: Sequence[RunData], charts: Sequence[Chart], *sentences: str, when_empty: bool = True) -> Block:
    """Return charts, and sentences about what is missing."""
    unit, events = time_unit(max(run.duration for run in runs)), events_of(runs)
    shown = () if charts and when_empty else sentences
    return Block(sentences=shown, figures=tuple(draw(chart, unit, events) for chart in charts))


def _plan_block(run: RunData, *, named: bool) -> Block:
    title = run.name if named else ""
    if run.plan is None:
        return Block(title, ("The Record has no plan: this run was not planned by oomph, or by an older version.",))
    changes = changes_table(run.plan)
    tables = (*((changes,) if changes else ()), settings_table(run.plan))
    return Block(title, tuple(plan_sentences(run.plan)), tables)


def _events_block(run: RunData, *, named: bool) -> Block:
    title, events = run.name if named else "", run_events(run)
    findings = tuple(_finding_text(rank, finding, several=len(run.ranks) > 1) for rank, finding in run.findings)
    if not events and not findings:
        return Block(title, ("Nothing went wrong: no retries, no errors, no findings.",))
    rows = [(_elapsed(event.time), event.label, event.text) for event in events]
    table = PageTable(("time", "event", "explanation"), tuple(rows))
    return Block(title, tables=(table,) if rows else (), findings=findings)


def _finding_text(rank: int, finding: Finding, *, several: bool) -> FindingText:
    suffix = f" (rank {rank})" if several else ""
    why = (*finding.details, finding.cause.why)
    return FindingText(f"{finding.title}{suffix}", finding.evidence, why, finding.fix)


def _elapsed(seconds: float) -> str:
    hours, rest = divmod(max(int(seconds), 0), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def _peak_blocks(runs: Sequence[RunData]) -> Iterator[Block]:
    for number, run in enumerate(runs):
        title = run.name if len(runs) > 1 else ""
        if run.plan is None:
            yield Block(title, ("Without a plan in the Record, the composition of the peak is unknown.",))
            continue
        need = run.plan.planned_need
        figure = peak_figure(need, "peak" if not number else f"peak-{number + 1}")
        what = "growth of the process" if need.target == "cpu" else "memory allocated by torch"
        sentence = (
            f"Predicted {what} at its peak, by module and kind. The parts add up to {round(need.allocated.value):,} "
            f"bytes. The part “{REST}” is what the allocator adds by rounding and fragmentation, and what a "
            "run needs beside a step, such as a moving average of the weights and the guard's backup."
        )
        yield Block(title, (sentence,), (largest_parts(need),), (figure,))


def _picture_blocks(runs: Sequence[RunData]) -> Iterator[Block]:
    for run in runs:
        pictures = tuple(picture for file in run.pictures if (picture := embed(file)) is not None)
        if run.is_folder:
            sentences = () if pictures else ("The run folder has no pictures yet.",)
            yield Block(run.name if len(runs) > 1 else "", sentences, pictures=pictures)


def _data_blocks(runs: Sequence[RunData]) -> Iterator[Block]:
    for run in runs:
        if run.issues is None:
            continue
        rows = [
            (issue.split, issue.count, "skipped" if issue.skipped else "used", issue.problem, ", ".join(issue.examples))
            for issue in run.issues
        ]
        table = PageTable(("split", "items", "", "problem", "for example"), tuple(rows))
        sentences = () if rows else ("No file was skipped, and nothing had to be fixed.",)
        yield Block(run.name if len(runs) > 1 else "", sentences, (table,) if rows else ())


def comparison_table(runs: Sequence[RunData], summaries: Sequence[Summary]) -> PageTable:
    """Return the runs side by side: state, numbers, and the settings that differ."""
    facts = [dict(summary.facts) for summary in summaries]
    names = list(dict.fromkeys(name for run_facts in facts for name in run_facts))
    rows = [("state", *(summary.state for summary in summaries))]
    rows += [(name, *(run_facts.get(name, "") for run_facts in facts)) for name in names]
    rows.append(("verdict", *(_first_finding(run) for run in runs)))
    rows += [row for row in _differing_settings(runs) if row[0] not in names]
    return PageTable(("", *(run.name for run in runs)), tuple(rows))


def _first_finding(run: RunData) -> str:
    return run.findings[0][1].title if run.findings else "no problem"


def _differing_settings(runs: Sequence[RunData]) -> Iterator[tuple[str, ...]]:
    settings = [_settings_of(run) for run in runs]
    for name in dict.fromkeys(name for values in settings for name in values):
        known = {run_settings[name] for run_settings in settings if name in run_settings}
        if len(known) > 1:
            yield (name, *(run_settings.get(name, "") for run_settings in settings))


def _settings_of(run: RunData) -> dict[str, str]:
    """Return the settings of a run: those of `oomph train`, and those of its plan."""
    settings = {}
    for name, value in run.config.items():
        nested = value.items() if isinstance(value, dict) else ((name, value),)
        settings.update({key: str(item)[:80] for key, item in nested if key != "run_dir"})
    if run.plan is not None:
        settings |= {f"planned {name}": planned for name, _, planned in setting_pairs(run.plan)}
        settings["planned budget"] = format_size(run.plan.budget)
    return settings
