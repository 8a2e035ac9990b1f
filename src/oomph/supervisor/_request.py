"""The request to run a command: its limits and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..failures import FailureKind
from .retry import RetryPolicy

_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class HostLimits:
    """The limits of a command.

    Attributes:
        budget: RAM of its process tree, in bytes; None for any.
        guards_ram: True to stop it when the machine or container has almost no memory left.
        idle_seconds: Time without output and without use of CPU and GPU; None for any.
        grace_seconds: Time between SIGTERM and SIGKILL.
    """

    budget: int | None = None
    guards_ram: bool = True
    idle_seconds: float | None = None
    grace_seconds: float = _GRACE_SECONDS


@dataclass(frozen=True)
class StopReason:
    """Why the supervisor stopped a command.

    Attributes:
        kind: The kind of failure.
        text: The measurement, as a sentence.
        numbers: Its numbers by name, sizes in bytes.
    """

    kind: FailureKind
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFiles:
    """The files of a run.

    Attributes:
        record: The Record.
        log: The copy of the output; not written if all output goes to files already.
        command: The command lines, one per attempt; None for no such file.
    """

    record: Path
    log: Path
    command: Path | None = None


@dataclass(frozen=True)
class CommandRequest:
    """A foreign command that is to be run.

    Attributes:
        policy: The command, and its retries.
        files: Where the Record and the log go.
        limits: Its limits.
    """

    policy: RetryPolicy
    files: RunFiles
    limits: HostLimits = field(default_factory=HostLimits)
