"""What oomph must know about a training program to start it again, smaller and from its own checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ._file_edit import FileEdit
from ._flags import Flag, Words, ranks_per_node, script
from ._settings import BatchSettings

_MAX_SCRIPT = 1 << 20  # bytes


@dataclass(frozen=True)
class Restart:
    """A command line that continues a run.

    Attributes:
        words: The command and its arguments.
        checkpoint: The checkpoint that it continues from; empty if there is none, or if only the user knows it.
        edit: The change of a file without which it would continue with the batch before; None for none.
        note: What else a user must know about it, as a sentence; mostly empty.
        resume: The user's own arguments for a restart, as text; empty for known programs.
    """

    words: Words
    checkpoint: str = ""
    edit: FileEdit | None = None
    note: str = ""
    resume: str = ""

    @property
    def origin(self) -> str:
        """Where the run continues, after the changed settings in a sentence."""
        if self.resume:
            return f"and {self.resume}"
        return f"from {self.checkpoint or 'the beginning'}"


@dataclass(frozen=True)
class NoRestart:
    """A run that can't be continued with other settings.

    Attributes:
        reason: Why, as the end of a sentence without its period.
    """

    reason: str


@dataclass(frozen=True)
class FailedRun:
    """A command that ran out of memory.

    Attributes:
        words: The command and its arguments, as they were at the first start.
        settings: The settings that it failed with.
        start: When it was started the last time, in seconds since 1970; older checkpoints may be those of other runs.
        checkpoint: The checkpoint that it continued then; empty if there was none.
        output: What it has written since, with its escape sequences.
    """

    words: Words
    settings: BatchSettings
    start: float = 0.0
    checkpoint: str = ""
    output: str = ""


class Program(Protocol):
    """A training program whose command line is known."""

    @property
    def name(self) -> str:
        """The program, as text."""
        ...

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings of a command line of this program; None if the batch size is unknown."""
        ...

    def resize(self, words: Words, settings: BatchSettings) -> Words:
        """Return a command line of this program with other settings."""
        ...

    def restart(self, run: FailedRun, settings: BatchSettings) -> Restart | NoRestart:
        """Return how a run continues with other settings, from its newest checkpoint; changes nothing by itself."""
        ...


@dataclass(frozen=True)
class BatchFlags:
    """The flags of a program.

    Attributes:
        batch: The batch size.
        batch_default: Its default; None if it has none.
        accumulate: The number of accumulated batches; None if the program accumulates by itself.
        workers: The number of loader workers.
        workers_default: Its default; None if it has none.
        is_shared: True if the batch is divided among the ranks.
        nominal: The batch that the program accumulates to by itself; None if it doesn't.
    """

    batch: Flag
    batch_default: int | None
    accumulate: Flag | None
    workers: Flag
    workers_default: int | None
    is_shared: bool = False
    nominal: int | None = None

    def read(self, words: Words) -> BatchSettings | None:
        """Return the settings of a command line; None if the batch size is unknown or automatic."""
        batch = self.batch.read_number(words, self.batch_default)
        accumulate = None if self.accumulate is None else self.accumulate.read_number(words, 1)
        if batch is None or batch < 1 or (self.accumulate is not None and not accumulate):
            return None
        workers = self.workers.read_number(words, self.workers_default)
        return BatchSettings(batch, accumulate, workers, ranks_per_node(words) if self.is_shared else 1, self.nominal)

    def write(self, words: Words, settings: BatchSettings) -> Words:
        """Return the command line with other settings; flags whose value stays are not touched."""
        before = self.read(words)
        if before is None or settings.batch != before.batch:
            words = self.batch.write(words, settings.batch)
        if self.accumulate is not None and (before is None or settings.accumulate != before.accumulate):
            words = self.accumulate.write(words, settings.accumulate)
        if before is not None and settings.workers is not None and settings.workers != before.workers:
            words = self.workers.write(words, settings.workers)
        return words


def read_script(words: Words) -> str:
    """Return the text of a training script; empty for modules and other commands."""
    path = Path(script(words))
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SCRIPT).decode("utf-8", "replace") if path.suffix == ".py" else ""
    except (OSError, ValueError):
        return ""
