"""The teacher of a run: its weights, checked against the data, and a copy of them in the run directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ...errors import UsageError, quote
from ..checkpoint import Weights, read_weights
from ..model import Yolov5
from ._config import TrainConfig
from ._run_dir import RunDirectory

TEACHER_FILE = "teacher"
_MAX_NAMES = 80  # characters of class names in a message


def read_teacher(path: Path, names: Sequence[str]) -> Weights:
    """Read the weights of a teacher for data with these classes.

    Raises:
        MissingFile: the file doesn't exist.
        UsageError: it isn't a detector, or one of other classes.
    """
    weights = read_weights(path)
    if weights.classes != len(names):
        raise UsageError(
            f"the teacher {path} has {weights.classes} classes and the data has {len(names)}",
            "pass a teacher that was trained on the classes of the data",
        )
    teacher_names = weights.names or tuple(names)
    if teacher_names != tuple(names) and sorted(teacher_names) == sorted(names):
        raise UsageError(
            f"the classes of the teacher {path} are in another order ({quote(', '.join(teacher_names), _MAX_NAMES)})",
            f"write them into the data.yaml in that order, or train the teacher on this data ({names[0]!r} first)",
        )
    return weights


def with_saved_teacher(config: TrainConfig) -> TrainConfig:
    """Return the config of a resumed run with the copy of its teacher, so that the file may be gone or replaced."""
    copy = config.run_dir / "weights" / f"{TEACHER_FILE}.pt"
    return replace(config, teacher=copy) if config.teacher is not None and copy.is_file() else config


def save_teacher(run_dir: RunDirectory, teacher: Path, names: Sequence[str]) -> None:
    """Write a copy of the teacher into the run directory."""
    run_dir.save_model(TEACHER_FILE, read_teacher(teacher, names).build(), names, {})


def take_anchors(student: Yolov5, teacher: Yolov5) -> bool:
    """Give the student the teacher's anchors, without which their outputs can't be compared; True if it had others."""
    ours, theirs = student.head.anchors, teacher.head.anchors
    differ = not torch.allclose(ours, theirs.to(ours.device), rtol=1e-3)
    ours.copy_(theirs)
    return differ


def count_parameters(network: Yolov5) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in network.parameters())
