"""Predictions and plans with a teacher, which are really traced."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomph
from oomph.detect import detection_job, save_weights, train, yolov5
from oomph.detect.dataset import DEMO_NAMES
from oomph.detect.training.planning._job import with_teacher
from oomph.units import MIB

from ..runs import StopAtPlan, Stopped, small_config

TEACHER_BYTES = 7_030_417 * 4


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["response", "feature", "both"])
def test_predictions_count_the_teacher(kind: str) -> None:
    settings = oomph.Settings(batch=8, size=256)
    student = detection_job("n", classes=4)
    job = with_teacher(student, lambda: yolov5("s", 4), kind)
    alone, both = (oomph.predict(item, settings, "RTX 3060").allocated.value for item in (student, job))
    # Its temporary memory is free when the student's activations are at their peak; the losses need some.
    assert TEACHER_BYTES < both - alone < TEACHER_BYTES + 24 * MIB


@pytest.mark.large
def test_plans_count_the_teacher(demo_data: Path, tmp_path: Path) -> None:
    file = tmp_path / "teacher.pt"
    save_weights(file, yolov5("s", 4), DEMO_NAMES)
    needs = []
    for teacher in (None, file):
        progress = StopAtPlan()
        with pytest.raises(Stopped):
            train(small_config(demo_data, tmp_path / "run", teacher=teacher), progress)
        needs.append(progress.plans[0].planned_need.allocated.value)
    assert needs[1] - needs[0] > TEACHER_BYTES
