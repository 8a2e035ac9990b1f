"""The files of a cell's folder: the request to its supervisor, the outcome, and the output of its command."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ... import document
from ...errors import InvalidFile, MissingFile
from ...files import write_atomically

REQUEST_FILE, OUTCOME_FILE, LOG_FILE = "request.json", "outcome.json", "output.log"
_VERSION = 1

T = TypeVar("T")


class Limit(enum.Enum):
    """A limit that a cell can exceed."""

    TIME = "time"
    HOST = "host"
    GPU = "gpu"


@dataclass(frozen=True)
class Limits:
    """The limits of a cell; None means no limit.

    Attributes:
        seconds: Time.
        host: RSS of the process tree, in bytes.
        gpu: GPU memory of the process tree on one GPU, in bytes.
    """

    seconds: float | None = None
    host: int | None = None
    gpu: int | None = None


@dataclass(frozen=True)
class CellRequest:
    """Request to a supervisor.

    Attributes:
        argv: The command and its arguments.
        cwd: The folder that the command runs in.
        env: Environment variables that are added.
        limits: The command is killed if it exceeds one of them.
        is_alone: True if no other cell runs at the same time; then the GPU memory that is in use since the cell started
            belongs to it even if the driver doesn't show processes, as in a container.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    is_alone: bool = True


@dataclass(frozen=True)
class CellOutcome:
    """How the command of a cell ended, with its measured peaks.

    Attributes:
        exit_code: The exit code; None if a signal ended it, or it could not be started.
        signal: The signal that ended it.
        exceeded: The limit for which the supervisor killed it.
        start_error: The reason why it could not be started.
        host_peak: The largest RSS of its process tree, in bytes.
        gpu_peak: The largest GPU memory of its process tree on one GPU, in bytes.
        seconds: The time it ran.
    """

    exit_code: int | None = None
    signal: int | None = None
    exceeded: Limit | None = None
    start_error: str | None = None
    host_peak: int | None = None
    gpu_peak: int | None = None
    seconds: float = 0.0


def write_request(folder: Path, request: CellRequest) -> None:
    """Write the request of a cell into its folder."""
    _write(folder / REQUEST_FILE, "sweep request", request)


def read_request(folder: Path) -> CellRequest:
    """Read the request of a cell."""
    return _read(folder / REQUEST_FILE, "sweep request", CellRequest)


def write_outcome(folder: Path, outcome: CellOutcome) -> None:
    """Write the outcome of a cell atomically: it is complete, or the supervisor died before."""
    _write(folder / OUTCOME_FILE, "sweep outcome", outcome)


def read_outcome(folder: Path) -> CellOutcome | None:
    """Return the outcome of a cell; None if its supervisor has not written one."""
    try:
        return _read(folder / OUTCOME_FILE, "sweep outcome", CellOutcome)
    except MissingFile:
        return None


def _write(path: Path, kind: str, value: object) -> None:
    content = document.dumps(document.write(kind, _VERSION, value)).encode()
    write_atomically(path, lambda file: file.write(content))


def _read(path: Path, kind: str, cls: type[T]) -> T:
    data = document.load(path)
    try:
        return document.read(kind, _VERSION, cls, data)
    except InvalidFile as error:
        raise InvalidFile(f"{path}: {error.why}", error.fix) from None
