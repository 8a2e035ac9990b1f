"""A verdict on a machine: what is wrong, why it matters for training, and what to do."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...units import MIB


class Severity(enum.Enum):
    """How bad it is."""

    FAILS = "fails"  # training will fail, or fails already
    RISKY = "risky"  # training may fail or crawl, depending on its size
    NOTE = "note"  # nothing fails, but a number elsewhere will be misread without knowing this


@dataclass(frozen=True)
class Verdict:
    """One finding.

    Attributes:
        severity: how bad it is.
        name: a short fixed name for programs: "shm-small".
        what: what was found, in one sentence with its numbers.
        why: what it does to training.
        fix: what to do, one step a line; a line that starts with "$ " is a command.
        sources: where the numbers were read.
    """

    severity: Severity
    name: str
    what: str
    why: str
    fix: tuple[str, ...]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Load:
    """The data loading to judge a machine for: by default what YOLOv5-style training asks for.

    Attributes:
        workers: processes that load data.
        batch: bytes of one batch; 16 images of 640 × 640 as float32 by default.
        prefetch: batches that each worker keeps ready.
    """

    workers: int
    batch: int = 75 * MIB
    prefetch: int = 2
