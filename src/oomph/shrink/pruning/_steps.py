"""The results of pruning steps in their folders, so that an interrupted pruning goes on after the last one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ... import document
from ...files import write_atomically

_FILE, _KIND, _VERSION = "pruned.json", "pruning-step", 1


@dataclass(frozen=True)
class StepResult:
    """The result of a step.

    Attributes:
        weights: the fine-tuned weights.
        measured: peak memory of the fine-tuning in bytes; None if batches were split.
    """

    weights: str
    measured: int | None


def read_step(folder: Path) -> StepResult | None:
    """Return the result in the folder of a step; None if it isn't done.

    Raises:
        InvalidFile: the file is damaged.
    """
    path = folder / _FILE
    return document.read(_KIND, _VERSION, StepResult, document.load(path)) if path.is_file() else None


def write_step(folder: Path, result: StepResult) -> StepResult:
    """Write the result of a step, and return it."""
    text = document.dumps(document.write(_KIND, _VERSION, result))
    write_atomically(folder / _FILE, lambda file: file.write(text.encode()))
    return result
