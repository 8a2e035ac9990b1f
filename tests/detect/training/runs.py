"""Small training runs for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from oomph.detect import StepStats, TrainConfig, demo_config
from oomph.planner import Plan

HYP = replace(demo_config(Path("data.yaml"), Path("run")).hyp, nominal_batch=8)


def small_config(data: Path, run_dir: Path, **changes: Any) -> TrainConfig:
    """Return a run of two epochs of small images on the CPU."""
    defaults = {"cfg": "n", "imgsz": 64, "batch": 8, "epochs": 2, "hyp": HYP, "device": "cpu", "workers": 1}
    return TrainConfig(data=data, run_dir=run_dir, **{**defaults, **changes})


class RecordingProgress:
    """Remembers what was reported."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.tasks: dict[str, int] = {}
        self.rows: list[dict[str, Any]] = []
        self.plans: list[Plan] = []
        self.steps = 0

    def log(self, message: str) -> None:
        self.messages.append(message)

    def on_progress(self, task: str, done: int, total: int | None) -> None:
        del total
        self.tasks[task] = done

    def on_plan(self, plan: Plan) -> None:
        self.plans.append(plan)

    def on_step(self, stats: StepStats) -> None:
        del stats
        self.steps += 1

    def on_epoch_end(self, row: dict[str, Any]) -> None:
        self.rows.append(row)


class Stopped(Exception):
    """Ends a run early."""


class StopAtPlan(RecordingProgress):
    """Ends the run when it is planned."""

    def on_plan(self, plan: Plan) -> None:
        super().on_plan(plan)
        raise Stopped


class StopAtMessage(RecordingProgress):
    """Ends the run at a message that contains a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def log(self, message: str) -> None:
        if self._text in message:
            raise Stopped(message)
