"""Explanation of a command's end, from its status, its last output and its Record."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import OomphError
from ..failures import FailureKind, Finding, LogScanner, last_error, measured_finding, read_log
from ..monitor import Explanation, diagnose_record, load_record
from ..units import MIB, format_size
from ._cgroup import CommandCgroup
from ._supervision import CommandEnd
from .retry import is_other_error, is_out_of_memory

_SIGNAL_BASE = 128  # a shell returns 128 plus the signal that ended its command
_MAX_OUTPUT = 24 * MIB  # of a longer output, only its end is searched
_EVIDENCE = 80  # characters of evidence that tell its place
# Lines of progress, without progress bars: these are drawn again when a run dies.
_PROGRESS = re.compile(r"^(?!.*%\|).*\b(?:[Ll]oss|[Ee]poch)\W{1,3}\d", re.MULTILINE)
_MIN_PROGRESS = 3  # such lines after a failure that was survived
_OWN_LINES = re.compile(r"^oomph: .*$", re.MULTILINE)
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_STOPS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
# Failures that follow another one, and say nothing about its cause.
_CONSEQUENCES = {FailureKind.STOPPED, FailureKind.ABORTED, FailureKind.KILLED, FailureKind.PEER_DIED}


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: with an exit code, or by a signal."""

    code: int | None = None
    signal: int | None = None

    @classmethod
    def of(cls, status: int) -> ExitStatus:
        """Return that of a wait status."""
        if os.WIFSIGNALED(status):
            return cls(signal=os.WTERMSIG(status))
        return cls(code=os.WEXITSTATUS(status))

    @property
    def shell_code(self) -> int:
        """The exit code that a shell reports."""
        return self.code if self.code is not None else _SIGNAL_BASE + (self.signal or 0)

    @property
    def likely_signal(self) -> int | None:
        """The signal that ended it, or its own child if it is a shell."""
        if self.signal is not None:
            return self.signal
        number = (self.code or 0) - _SIGNAL_BASE
        return number if number in {signal.SIGKILL, signal.SIGABRT, signal.SIGPIPE, *_CRASHES, *_STOPS} else None

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        known = set(signal.Signals)
        return signal.Signals(self.signal).name if self.signal in known else f"signal {self.signal}"


def explain_end(end: CommandEnd, record: Path, cgroup: CommandCgroup | None) -> Explanation | None:
    """Explain the end of a command; None if it ended well."""
    status = ExitStatus.of(end.status)
    if end.stop is None and (status.code == 0 or status.likely_signal == signal.SIGPIPE):
        return None  # nobody read its output any more, as behind `| head`
    output = b"\n".join(file.read_end(_MAX_OUTPUT) for file in end.files).decode("utf-8", "replace")
    output = _OWN_LINES.sub("", output)  # its standard error and ours may go to the same file
    logged = read_log(output)
    first = _first_finding(end, status, logged, cgroup)
    measured = _record_findings(record)
    if first is None:
        full = next((finding for finding in measured if finding.kind is FailureKind.OOM_KILL), None)
        first = _signal_finding(status, full)
    if first is not None and end.stop is None and is_out_of_memory(first):
        later = _after(first, output)
        if (error := _other_error(later)) is not None:
            first = error
        elif _went_on(later):
            logged = tuple(replace(finding, was_survived=True) for finding in logged)
            first = None
    others = [finding for finding in (*logged, *measured) if finding.kind not in _ENDS]
    findings: dict[FailureKind, Finding] = {}
    for finding in (*(() if first is None else (first,)), *others):
        findings.setdefault(finding.kind, finding)
    unrecognized = last_error(_after_survived(logged, output)) if first is None else None
    return Explanation("log", tuple(findings.values()), unrecognized=unrecognized, has_failed=True)


# The diagnosis of a Record reports these for its own end, which is not that of the command.
_ENDS = {FailureKind.UNEXPECTED_END, FailureKind.OOM_KILL}


def _first_finding(
    end: CommandEnd, status: ExitStatus, logged: Sequence[Finding], cgroup: CommandCgroup | None
) -> Finding | None:
    """Return what is certain: what the supervisor or the kernel did, then what the output says."""
    if end.stop is not None:
        return measured_finding(end.stop.kind, end.stop.text, end.stop.numbers)
    if end.kills.cgroup and cgroup is not None:
        text = f"The kernel killed it at the limit of its cgroup, {format_size(cgroup.limit)}."
        return measured_finding(FailureKind.HOST_BUDGET, text, {"limit": cgroup.limit})
    if end.kills.machine and status.likely_signal == signal.SIGKILL:
        text = "It received SIGKILL, and the kernel's count of out-of-memory kills grew at that moment."
        return measured_finding(FailureKind.OOM_KILL, text, {})
    if end.signals and status.likely_signal in {None, *_STOPS}:
        names = ", ".join(dict.fromkeys(signal.Signals(number).name for number in end.signals))
        return measured_finding(FailureKind.STOPPED, f"It received {names} and ended with {status}.", {})
    if status.likely_signal in _STOPS:  # from somebody else, whatever the output says
        return measured_finding(FailureKind.STOPPED, f"It ended with {status}.", {})
    return next((finding for finding in logged if not finding.was_survived), None)


def _signal_finding(status: ExitStatus, full: Finding | None) -> Finding | None:
    """Return the finding of a signal that nothing else explains; `full` says that memory was full at the end."""
    number, text = status.likely_signal, f"It ended with {status}."
    if number == signal.SIGKILL:
        return full or measured_finding(FailureKind.KILLED, text, {})
    if number in _CRASHES:
        return measured_finding(FailureKind.CRASH, text, {})
    if number == signal.SIGABRT:
        return measured_finding(FailureKind.ABORTED, text, {})
    return measured_finding(FailureKind.STOPPED, text, {}) if number in _STOPS else None


def _after(finding: Finding, output: str) -> str:
    """Return the output after a failure; empty if it is not from the output."""
    position = output.rfind(finding.evidence[:_EVIDENCE])
    return "" if position < 0 else output[position + len(finding.evidence) :]


def _other_error(later: str) -> Finding | None:
    """Return the error that ended a run which had survived a failure: one that is not about memory and came later."""
    findings = read_log(later)
    return next((other for other in findings if is_other_error(other) and other.kind not in _CONSEQUENCES), None)


def _went_on(later: str) -> bool:
    """Return True if the text after a failure shows that the run survived it, and died of something unknown."""
    if len(_PROGRESS.findall(later)) >= _MIN_PROGRESS:
        return True
    scanner = LogScanner()
    scanner.feed(later.encode("utf-8", "replace"))
    reading = scanner.finish()
    return not reading.findings and reading.unknown_end is not None


def _after_survived(logged: Sequence[Finding], output: str) -> str:
    """Return the output after the last failure that the run survived."""
    ends = [output.rfind(finding.evidence[:_EVIDENCE]) + len(finding.evidence) for finding in logged]
    return output[max(ends, default=0) :]


def _record_findings(path: Path) -> tuple[Finding, ...]:
    """Return the diagnosis of a Record that this process is still writing."""
    try:
        record = load_record(path)
    except OomphError:
        return ()
    return diagnose_record(replace(record, header={**record.header, "host": ""}))
