"""Runs of a foreign command: the first one, and retries after it ran out of memory."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..monitor import Explanation, Recorder
from ..units import MIB
from ._cgroup import CommandCgroup, create_cgroup
from ._command_process import StartError
from ._death import ExitStatus, explain_end
from ._output import OutputLog
from ._processes import CommandTree, adopt_orphans
from ._request import CommandRequest, RunFiles
from ._result import Attempt, RunResult
from ._streams import StreamKind, Streams, read_streams
from ._supervision import CommandEnd, Supervision
from ._surroundings import describe_surroundings
from .retry import Decision, FailedRun

_MAX_TEXT = 2000  # characters of an error in the Record
_MAX_START = 4 * MIB  # bytes in which programs say where their results go
_STOPPED_CODE = 143  # of a command that oomph stopped, whatever it returned itself


@dataclass(frozen=True)
class CommandRun:
    """Runs a command; `tell` is called with sentences for the user meanwhile."""

    request: CommandRequest
    tell: Callable[[str], None]

    def run(self) -> RunResult:
        """Run the command until it ends and is not started again."""
        cwd = str(Path.cwd())  # it may be deleted meanwhile
        adopt_orphans()
        tree = CommandTree()
        streams = read_streams()
        words, settings = self.request.policy.first_words, self.request.policy.first_settings
        notes, checkpoint = describe_surroundings(words), ""
        for note in notes:
            self.tell(note)
        attempts: list[Attempt] = []
        with Recorder(self.request.files.record) as recorder, _log(self.request.files, streams, self.tell) as log:
            while True:
                self._write_command(recorder, words, cwd, len(attempts) + 1)
                start = time.time()
                attempt, output = self._attempt(words, tree, streams, recorder, log)
                attempts.append(attempt)
                given = self.request.policy.words
                run = None if settings is None else FailedRun(given, settings, start, checkpoint, output)
                decision = _with_edit(self._decide(attempt, run, len(attempts) - 1))
                if decision.restart is None:
                    _write_end(recorder, attempts[-1])
                    smaller = None if attempt.explanation is None else self.request.policy.suggest(run)
                    return RunResult(tuple(attempts), self.request.files, notes, decision.why_not, smaller)
                self._tell_restart(recorder, decision, attempts)
                words, settings = decision.restart.words, decision.settings
                checkpoint = decision.restart.checkpoint
                tree.kill()  # what it left running may still use the memory

    def _decide(self, attempt: Attempt, run: FailedRun | None, retries: int) -> Decision:
        if attempt.explanation is None or attempt.was_interrupted:
            return Decision()
        return self.request.policy.decide(attempt.explanation.failure, run, retries)

    def _attempt(
        self, words: tuple[str, ...], tree: CommandTree, streams: Streams, recorder: Recorder, log: OutputLog
    ) -> tuple[Attempt, str]:
        """Run the command once; return how it ended, and the beginning of its output."""
        with self._cgroup() as cgroup:
            supervision = Supervision(words, tree, streams, self.request.limits, cgroup, log)
            try:
                end = supervision.run(recorder, {})
            except StartError as error:
                return Attempt(words, error.exit_code, f"exit code {error.exit_code}", start_error=str(error)), ""
            explanation = explain_end(end, self.request.files.record, cgroup)
        output = b"\n".join(file.read_start(_MAX_START) for file in end.files).decode("utf-8", "replace")
        return _attempt_of(words, end, explanation), output

    @contextlib.contextmanager
    def _cgroup(self) -> Iterator[CommandCgroup | None]:
        cgroup = None if self.request.limits.budget is None else create_cgroup(self.request.limits.budget)
        try:
            yield cgroup
        finally:
            if cgroup is not None:
                cgroup.remove()

    def _write_command(self, recorder: Recorder, words: tuple[str, ...], cwd: str, attempt: int) -> None:
        recorder.event("command", argv=list(words), cwd=cwd, attempt=attempt)
        path = self.request.files.command
        if path is None:
            return
        try:
            with path.open("a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(shlex.join(words) + "\n")
        except OSError as error:
            self.tell(f"The command is not written into {path}: {error.strerror}.")

    def _tell_restart(self, recorder: Recorder, decision: Decision, attempts: list[Attempt]) -> None:
        attempt, restart = attempts[-1], decision.restart
        assert restart is not None  # noqa: S101  the caller has checked it
        finding = None if attempt.explanation is None else attempt.explanation.failure
        assert finding is not None  # noqa: S101  it is why the command is started again
        self.tell(
            f"{finding.cause.title} ({attempt.ending}). Starting it again with {decision.change} {restart.origin} "
            f"(retry {len(attempts)} of {self.request.policy.max_retries})."
        )
        for sentence in (restart.note, restart.edit):
            if sentence:
                self.tell(str(sentence))
        recorder.event(
            "retry",
            kind=finding.kind.value,
            text=finding.evidence[:_MAX_TEXT],
            change=decision.change,
            number=len(attempts),
        )


def _with_edit(decision: Decision) -> Decision:
    """Change the file that a restart needs changed; if that fails, there is no restart."""
    edit = None if decision.restart is None else decision.restart.edit
    if edit is None:
        return decision
    try:
        edit.write()
    except OSError as error:
        return Decision(
            why_not=f"Not started again: {edit.path} can't be changed ({error.strerror}), and {edit.program} reads the "
            "batch there when it resumes."
        )
    return decision


@contextlib.contextmanager
def _log(files: RunFiles, streams: Streams, tell: Callable[[str], None]) -> Iterator[OutputLog]:
    """Open the log; it is removed if nothing was copied because all output goes to files."""
    log = OutputLog(files.log, tell)
    try:
        yield log
    finally:
        log.close()
        if set(streams.kinds.values()) <= {StreamKind.FILE, StreamKind.CLOSED} and not files.log.stat().st_size:
            files.log.unlink()


def _attempt_of(words: tuple[str, ...], end: CommandEnd, explanation: Explanation | None) -> Attempt:
    status = ExitStatus.of(end.status)
    return Attempt(
        argv=words,
        exit_code=status.shell_code if end.stop is None or status.signal is not None else _STOPPED_CODE,
        ending=str(status),
        seconds=round(end.seconds, 3),
        explanation=explanation,
        stop=end.stop,
        survivors=end.survivors,
        was_interrupted=bool(end.signals),
    )


def _write_end(recorder: Recorder, attempt: Attempt) -> None:
    """Write how the command ended; `oomph explain` reads the error."""
    recorder.event("exit", code=attempt.exit_code, ending=attempt.ending, seconds=attempt.seconds)
    explanation = attempt.explanation
    if explanation is None:
        return
    finding = explanation.failure
    text = explanation.unrecognized if finding is None else finding.evidence
    recorder.event(
        "error",
        error=attempt.ending,
        text=(text or "")[:_MAX_TEXT],
        kind=None if finding is None else finding.kind.value,
    )
