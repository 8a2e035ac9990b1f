"""The result of a run: its attempts, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass

from ..monitor import Explanation
from ._request import RunFiles, StopReason
from .retry import SmallerCommand


@dataclass(frozen=True)
class Attempt:
    """One start of the command.

    Attributes:
        argv: The command and its arguments.
        exit_code: Its exit code as a shell reports it: 128 plus the number of a signal.
        ending: How it ended, as text: "exit code 1", "SIGKILL".
        seconds: The time it ran.
        explanation: Why it died; None if it ended well.
        stop: Why oomph stopped it; None if it didn't.
        survivors: Processes that it left running.
        was_interrupted: True if a signal from outside asked it to end.
        start_error: Why it could not be started; empty if it was.
    """

    argv: tuple[str, ...]
    exit_code: int
    ending: str
    seconds: float = 0.0
    explanation: Explanation | None = None
    stop: StopReason | None = None
    survivors: tuple[int, ...] = ()
    was_interrupted: bool = False
    start_error: str = ""

    @property
    def is_plain(self) -> bool:
        """True if there is nothing to tell: it ended well and left nothing running."""
        return self.explanation is None and not self.survivors and not self.start_error


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        attempts: The starts of the command; the last one decides.
        files: The Record and the log.
        notes: What oomph could not see or control.
        why_not_retried: Why it was not started again; empty if nothing had to be.
        smaller: The command with a smaller batch; None if it isn't known.
    """

    attempts: tuple[Attempt, ...]
    files: RunFiles
    notes: tuple[str, ...] = ()
    why_not_retried: str = ""
    smaller: SmallerCommand | None = None

    @property
    def last(self) -> Attempt:
        """The last start."""
        return self.attempts[-1]

    @property
    def exit_code(self) -> int:
        """The exit code of the last start."""
        return self.last.exit_code
