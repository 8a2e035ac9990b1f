"""A run as its files show it: Records, plan, results, findings. Reads files; draws nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ... import document
from ...errors import InvalidFile, MissingFile, OomphError, UsageError, quote
from ...failures import Finding
from ...monitor import Record, diagnose_record, load_record
from ...planner import Plan
from ._run_files import (
    IssueRow,
    PictureFile,
    find_pictures,
    read_config,
    read_epochs,
    read_issues,
    record_files,
)
from ._series import finite

_CPU = "cpu"
# Exceptions of a run that was asked to stop.
_STOP_ERRORS = ("KeyboardInterrupt", "SystemExit")


@dataclass(frozen=True)
class RankRecord:
    """The Record of a rank, and the problems in it."""

    rank: int
    file: Path
    record: Record
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Predicted:
    """What was predicted before a run, in bytes; None where it is unknown.

    Attributes:
        peak: what is compared with the measured peak: memory allocated by torch on a GPU, RSS on the CPU.
        reserved: memory that torch's allocator reserves on a GPU.
        host: RSS of the process.
        budget: the limit that the plan was made for.
    """

    peak: int | None = None
    reserved: int | None = None
    host: int | None = None
    budget: int | None = None


@dataclass(frozen=True)
class RunData:
    """A run.

    Attributes:
        name: its name on the page.
        path: the folder or Record that it was read from.
        is_folder: True for a folder of `oomph train`.
        ranks: its Records by rank.
        plan: the plan; None if the Record has none.
        epochs: the rows of results.csv.
        config: the resolved settings of `oomph train`.
        issues: problems of the data; None if there is no list of them.
        pictures: pictures in the folder.
    """

    name: str
    path: Path
    is_folder: bool
    ranks: tuple[RankRecord, ...]
    plan: Plan | None = None
    epochs: tuple[Mapping[str, float], ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    issues: tuple[IssueRow, ...] | None = None
    pictures: tuple[PictureFile, ...] = ()

    @property
    def record(self) -> Record:
        """The Record of the first rank."""
        return self.ranks[0].record

    @property
    def start(self) -> float:
        """When the run was first started, in seconds since 1970."""
        return min(rank.record.start_times[0] for rank in self.ranks)

    @property
    def duration(self) -> float:
        """Seconds from the first start to the last line."""
        return max(max(rank.record.last_time for rank in self.ranks) - self.start, 0.0)

    @property
    def is_empty(self) -> bool:
        """True if nothing was measured."""
        return not any(rank.record.samples or rank.record.steps for rank in self.ranks)

    @cached_property
    def uses_gpu(self) -> bool:
        """True if the run trained on a GPU."""
        target = self._prediction_event.get("target")
        if isinstance(target, str):
            return target != _CPU
        return any(sample.get("torch") for rank in self.ranks for sample in rank.record.samples)

    @property
    def predicted(self) -> Predicted:
        """The prediction in the Record."""
        event = self._prediction_event
        sizes = {name: _size(event.get(name)) for name in ("allocated", "reserved", "host", "budget")}
        peak = sizes["allocated"] if self.uses_gpu else sizes["host"]
        reserved = sizes["reserved"] if self.uses_gpu else None
        return Predicted(peak, reserved, sizes["host"], sizes["budget"])

    @cached_property
    def _prediction_event(self) -> Mapping[str, Any]:
        return last_event(self.record, "prediction") or {}

    @cached_property
    def measured_peak(self) -> float | None:
        """The largest memory that torch allocated on a GPU, or RSS of the main process on the CPU."""
        return max((size for rank in self.ranks for size in _peaks(rank.record, uses_gpu=self.uses_gpu)), default=None)

    @cached_property
    def retries(self) -> int:
        """Number of retries of steps."""
        return int(sum(finite(step.get("retries")) or 0 for rank in self.ranks[:1] for step in rank.record.steps))

    @cached_property
    def findings(self) -> tuple[tuple[int, Finding], ...]:
        """The problems of all ranks, each with its rank, the first rank's first; equal ones once."""
        unique: dict[tuple[str, str], tuple[int, Finding]] = {}
        for rank in self.ranks:
            for finding in rank.findings:
                unique.setdefault((finding.kind.value, finding.evidence), (rank.rank, finding))
        return tuple(unique.values())


def _peaks(record: Record, *, uses_gpu: bool) -> Iterator[float]:
    for step in record.steps:
        if (size := finite(step.get("peak"))) is not None:
            yield size
    for sample in record.samples:
        if uses_gpu:
            yield from (float(stats["peak"]) for stats in sample.get("torch", ()))
        elif "main_rss" in sample:
            yield float(sample["main_rss"])


def _size(value: object) -> int | None:
    number = finite(value) if not isinstance(value, str) else None
    return int(number) if number is not None and number > 0 else None


def last_event(record: Record, name: str) -> Mapping[str, Any] | None:
    """Return the last event of a name; None if there is none."""
    return next((event for event in reversed(record.events) if event["event"] == name), None)


def stop_event(record: Record) -> Mapping[str, Any] | None:
    """Return the event of a run that was asked to stop since its last start; None if it wasn't."""
    for event in record.events:
        is_stop = event["event"] == "stopped" or (event["event"] == "error" and event.get("error") in _STOP_ERRORS)
        if is_stop and event["t"] >= record.start_times[-1]:
            return event
    return None


def load_runs(paths: Sequence[Path]) -> tuple[RunData, ...]:
    """Load runs; runs of the same name are numbered.

    Raises:
        MissingFile: there is no such folder or file.
        InvalidFile: a file is not a Record.
        UsageError: a run is named twice.
    """
    resolved = [path.resolve() for path in paths]
    if len(set(resolved)) < len(resolved):
        raise UsageError("the same run is named twice", "name each run once")
    runs: list[RunData] = []
    for path in paths:
        run, names = load_run(path), {run.name for run in runs}
        numbered = (f"{run.name} ({number})" for number in range(2, len(runs) + 2))
        name = run.name if run.name not in names else next(name for name in numbered if name not in names)
        runs.append(replace(run, name=name))
    return tuple(runs)


def load_run(path: Path) -> RunData:
    """Load a run from its folder or its Record.

    Raises:
        MissingFile: there is no such folder or file, or the folder has no Record.
        InvalidFile: a file is not a Record.
    """
    if not path.is_dir():
        return _with_plan(RunData(path.stem, path, is_folder=False, ranks=(_load_rank(0, path),)))
    files = record_files(path)
    if not files:
        raise MissingFile(
            f"there is no record.jsonl in {quote(str(path))}", "name a folder of `oomph train`, or a Record"
        )
    ranks = [_load_rank(rank, file) for rank, file in files.items() if not _is_unwritten(rank, file)]
    if not ranks:
        raise InvalidFile(f"the Record in {quote(str(path))} is empty", "wait until the run has started")
    run = RunData(
        name=path.resolve().name,
        path=path,
        is_folder=True,
        ranks=tuple(ranks),
        epochs=read_epochs(path),
        config=read_config(path),
        issues=read_issues(path),
        pictures=find_pictures(path),
    )
    return _with_plan(run)


def _is_unwritten(rank: int, file: Path) -> bool:
    """Return True for the empty Record of a further rank that has not started yet."""
    return rank > 0 and not file.stat().st_size


def _load_rank(rank: int, file: Path) -> RankRecord:
    record = load_record(file)
    return RankRecord(rank, file, record, diagnose_record(record))


def _with_plan(run: RunData) -> RunData:
    event = last_event(run.record, "plan")
    if event is None:
        return run
    try:
        return replace(run, plan=document.read("plan", 1, Plan, event.get("plan")))
    except OomphError:  # written by another version
        return run
