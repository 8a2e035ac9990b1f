from __future__ import annotations

import io
from dataclasses import replace

from oomph.machine import find_target
from oomph.planner import Plan
from oomph.prediction import Estimate, Origin, Peak, Prediction
from oomph.report import PlanReport, emit
from oomph.settings import Settings
from oomph.units import GIB

H200 = find_target("H200")


def need(gib: float) -> Prediction:
    size = Estimate(gib * GIB, gib * GIB, gib * GIB, Origin.TRACED)
    seconds = Estimate(0.5, 1.0, 2.0, Origin.ASSUMED)
    peak = Peak("forward", 1, "relu", "", (), ())
    return Prediction("H200", size, size, size, size, size, size, seconds, peak, (), ())


PLAN = Plan(
    requested=Settings(batch=64),
    settings=Settings(batch=64, micro_batch=16),
    budget=4 * GIB,
    requested_need=need(8),
    planned_need=need(2),
    changes=(),
    notes=("Captured: model Gpt (0.5 M parameters).",),
    steps=("Add these lines:\nimport oomph\nplan.apply(model, optimizer)", "Set the DataLoader's batch_size to 16."),
)


def shown(report: PlanReport) -> str:
    stream = io.StringIO()
    emit(report, as_json=False, stream=stream)
    return stream.getvalue()


def test_steps_end_the_report_of_a_script() -> None:
    text = shown(PlanReport(PLAN, "train.py", H200, "plan.json"))
    assert "of 4 GiB.\nCaptured: model Gpt (0.5 M parameters).\n" in text
    assert text.endswith(
        """
To carry it out:
1. Add these lines:
   import oomph
   plan.apply(model, optimizer)
   The plan is not written yet: pass --out plan.json.
2. Set the DataLoader's batch_size to 16.
"""
    )


def test_file_that_was_written_needs_no_flag() -> None:
    assert "--out" not in shown(PlanReport(PLAN, "train.py", H200))


def test_plan_of_a_job_has_no_steps() -> None:
    text = shown(PlanReport(replace(PLAN, notes=(), steps=()), "yolov5s", H200))
    assert "carry" not in text


def test_memory_of_other_processes_is_mentioned() -> None:
    assert "Other processes" not in shown(PlanReport(PLAN, "yolov5s", H200))
    shared = H200.with_free_memory(H200.memory - 3 * GIB)
    sentence = "Other processes hold 3 GiB of this GPU now, which the plan leaves to them."
    assert sentence in shown(PlanReport(PLAN, "yolov5s", shared))
