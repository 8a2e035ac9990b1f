"""The result of a cell: a row of the table."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from ._grid import Cell


class Status(enum.Enum):
    """How a cell ended."""

    DONE = "done"
    FAILED = "failed"
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    KILLED = "killed"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class CellResult:
    """Measurements of a cell, or the reason why there are none.

    Attributes:
        cell: The cell.
        status: How it ended; `INTERRUPTED` never becomes a row.
        metrics: The metrics by name, finite numbers.
        host_peak: The largest RSS of its process tree, in bytes.
        gpu_peak: The largest GPU memory of its process tree on one GPU, in bytes; None without a GPU.
        seconds: The time it ran.
        predicted: The predicted peak, in bytes: of the GPU, or of the host on the CPU.
        extra: Other numbers by name: images/s, micro-batches, retries.
        why: The reason why it is not done, one sentence without a period.
        fix: What to do about it, one step per line; a line that starts with "$ " is a command.
        exit_code: The exit code of its command.
    """

    cell: Cell
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    host_peak: int | None = None
    gpu_peak: int | None = None
    seconds: float | None = None
    predicted: int | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    fix: tuple[str, ...] = ()
    exit_code: int | None = None

    @property
    def is_done(self) -> bool:
        """True if the cell has its metrics."""
        return self.status is Status.DONE

    @property
    def memory(self) -> int | None:
        """The measured peak that cells are compared by: of the GPU if one was used, else of the host."""
        return self.host_peak if self.gpu_peak is None else self.gpu_peak
