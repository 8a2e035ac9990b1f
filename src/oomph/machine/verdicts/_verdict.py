"""A verdict on a machine: the problem, its effect on training, and the fix."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...units import MIB


class Severity(enum.Enum):
    """Severity of a verdict."""

    FAILS = "fails"  # training fails
    RISKY = "risky"  # training may fail or run slowly, depending on its size
    NOTE = "note"  # nothing fails, but other tools show misleading numbers


@dataclass(frozen=True)
class Verdict:
    """A problem of a machine.

    Attributes:
        severity: How bad it is.
        name: A short, stable name for scripts: "shm-small".
        summary: The problem in one sentence, with its numbers.
        why: The effect on training.
        fix: The steps to take, one per line; a line that starts with "$ " is a command.
        sources: Where the numbers were read.
    """

    severity: Severity
    name: str
    summary: str
    why: str
    fix: tuple[str, ...]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataLoaderConfig:
    """The data loading that a machine is diagnosed for; the defaults are those of YOLOv5-style training.

    Attributes:
        workers: Number of loader worker processes.
        batch_bytes: Bytes of one batch; by default 16 float32 images of 640 × 640.
        prefetch: Batches that each worker prepares ahead.
    """

    workers: int
    batch_bytes: int = 75 * MIB
    prefetch: int = 2
