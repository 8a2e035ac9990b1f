"""Explanation of a cell that is not done: from its outcome, its limits and its output."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

from ...errors import shorten
from ...failures import FailureKind
from ...monitor import explain
from ...units import format_size, format_time
from .._result import Status
from ._cell_files import LOG_FILE, CellOutcome, Limit, Limits

_OUT_OF_MEMORY = {
    FailureKind.CUDA_OOM,
    FailureKind.HIP_OOM,
    FailureKind.MPS_OOM,
    FailureKind.XPU_OOM,
    FailureKind.DRIVER_OOM,
    FailureKind.LIBRARY_OOM,
    FailureKind.FRAMEWORK_OOM,
    FailureKind.IMPOSSIBLE_SIZE,
    FailureKind.CPU_OOM,
    FailureKind.MEMORY_ERROR,
    FailureKind.BAD_ALLOC,
    FailureKind.ENOMEM,
    FailureKind.ADDRESS_SPACE,
    FailureKind.COMMIT_LIMIT,
    FailureKind.PINNED,
    FailureKind.OOM_KILL,
    FailureKind.WORKER_KILLED,
    FailureKind.SHM_FULL,
}
_FATAL_SIGNALS = {
    getattr(signal, name)
    for name in ("SIGKILL", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE")
    if hasattr(signal, name)
}
_SIGNAL_BASE = 128  # a shell returns 128 plus the signal that ended its command
_LAST_BYTES = 1 << 16
_MAX_LINE = 200  # characters


@dataclass(frozen=True)
class CellExplanation:
    """How a cell ended, with the reason and the steps to take if it is not done."""

    status: Status
    why: str = ""
    fix: tuple[str, ...] = ()


def explain_cell(folder: Path, outcome: CellOutcome, limits: Limits) -> CellExplanation:
    """Explain the outcome of a cell; the output of its command is in the folder."""
    if outcome.exceeded is not None:
        return _explain_limit(outcome, limits)
    if outcome.start_error is not None:
        return CellExplanation(
            Status.FAILED, f"the command can't be started ({outcome.start_error})", ("Check the command.",)
        )
    if outcome.exit_code == 0:
        return CellExplanation(Status.DONE)
    log = folder / LOG_FILE
    findings = explain(log).findings if log.is_file() else ()
    first = next(iter(findings), None)
    if first is not None and first.kind in _OUT_OF_MEMORY:
        return CellExplanation(Status.OUT_OF_MEMORY, shorten(first.evidence, _MAX_LINE), first.fix)
    number = _signal_number(outcome)
    if number is not None:
        return _explain_signal(number, log)
    ending = f"exit code {outcome.exit_code}"
    line = last_line(log) if first is None else first.evidence
    why = f"{shorten(line, _MAX_LINE)} ({ending})" if line else f"it ended with {ending} and printed nothing"
    return CellExplanation(Status.FAILED, why, (*(() if first is None else first.fix), f"See {log}."))


def _explain_limit(outcome: CellOutcome, limits: Limits) -> CellExplanation:
    if outcome.exceeded is Limit.TIME:
        ran = format_time(limits.seconds or 0)
        return CellExplanation(
            Status.TIMED_OUT, f"it ran longer than {ran}", ("Start a new sweep with a larger timeout.",)
        )
    is_host = outcome.exceeded is Limit.HOST
    used, budget = (outcome.host_peak, limits.host) if is_host else (outcome.gpu_peak, limits.gpu)
    name, flag = ("RAM", "ram") if is_host else ("GPU memory", "gpu")
    why = f"it used {format_size(used or 0)} of {name}, and the budget is {format_size(budget or 0)}"
    return CellExplanation(
        Status.OUT_OF_MEMORY, why, (f"Use smaller values, or start a new sweep with a larger budget: {flag}=SIZE.",)
    )


def _signal_number(outcome: CellOutcome) -> int | None:
    if outcome.signal is not None:
        return outcome.signal
    number = (outcome.exit_code or 0) - _SIGNAL_BASE
    return number if number in {signal.SIGTERM, *_FATAL_SIGNALS} else None


def _explain_signal(number: int, log: Path) -> CellExplanation:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if name == "SIGKILL":
        return CellExplanation(
            Status.KILLED,
            "by SIGKILL: the kernel's out-of-memory killer or another process",
            ("Check whether the kernel killed it:", "$ sudo dmesg -T | oomph explain -"),
        )
    if number in _FATAL_SIGNALS:
        return CellExplanation(Status.KILLED, f"by {name}: it crashed", (f"See {log}.",))
    return CellExplanation(Status.KILLED, f"by {name}: another process ended it", ("Run the cell again.",))


def last_line(log: Path) -> str:
    """Return the last line of the output that isn't empty."""
    if not log.is_file():
        return ""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _LAST_BYTES, 0))
        lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
    return next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")
