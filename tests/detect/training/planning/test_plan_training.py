from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oomph.detect import DemoSize, TrainConfig, train, write_demo_dataset
from oomph.detect.training.planning import _plan_training
from oomph.detect.training.planning._extra_memory import ExtraMemory
from oomph.errors import CannotFit, UsageError
from oomph.planner import Plan, PlanRequest
from oomph.settings import Settings
from oomph.units import MIB

from ..runs import RecordingProgress, StopAtPlan, Stopped

pytestmark = pytest.mark.usefixtures("quick_predictions")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo_dataset(tmp_path_factory.mktemp("data"), DemoSize(train=4, val=2))


def plan_of(data: Path, **changes: Any) -> Plan:
    """Return the plan of a run, without training it."""
    defaults: dict[str, Any] = {"cfg": "n", "imgsz": 64, "batch": 2, "epochs": 1, "device": "cpu"}
    progress = StopAtPlan()
    with pytest.raises(Stopped):
        train(TrainConfig(data, data.parent / "run", **{**defaults, **changes}), progress)
    assert ("plan: settings predicted" in progress.tasks) == ("plan" not in changes)
    return progress.plans[0]


@pytest.mark.parametrize(
    ("device", "precision", "implementation"),
    [("cuda", "amp-bf16", "fused"), ("cuda", "fp32", "fused"), ("cuda", "amp-fp16", "given"), ("cpu", "fp32", "given")],
)
def test_gpus_use_fused_optimizers_except_with_fp16(device: str, precision: str, implementation: str) -> None:
    assert _plan_training.optimizer_implementation(precision, torch.device(device)) == implementation


@pytest.mark.medium
def test_plans_include_the_extra_memory(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = []
    for extra in (ExtraMemory(0, 0), ExtraMemory(10 * MIB, 0)):
        monkeypatch.setattr(_plan_training, "extra_memory", lambda *_, extra=extra: extra)
        needs.append(plan_of(data).planned_need.allocated.value)
    assert needs[1] - needs[0] == 10 * MIB


def test_the_optimizer_implementation_follows_the_planned_precision(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lower_precision(request: PlanRequest, predictor: Any) -> Plan:
        requested, prediction = request.settings, predictor.predict(request.settings)
        return Plan(requested, replace(requested, precision="amp-fp16"), request.budget, prediction, prediction, ())

    monkeypatch.setattr(_plan_training, "plan_fastest", lower_precision)
    monkeypatch.setattr(
        _plan_training, "optimizer_implementation", lambda precision, _: "given" if precision == "amp-fp16" else "fused"
    )
    plan = plan_of(data)
    assert (plan.requested.optimizer, plan.settings.optimizer) == ("fused", "given")


@pytest.mark.medium
def test_no_batch_is_planned_larger_than_the_data(data: Path) -> None:
    exact, large, automatic = (plan_of(data, batch=batch) for batch in (4, 100, -1))
    assert large.planned_need.allocated == exact.planned_need.allocated
    assert large.settings.batch == 100  # accumulation follows the requested batch
    assert automatic.settings.batch == 4


@pytest.mark.medium
def test_a_budget_that_is_too_small_explains_what_is_reserved(data: Path, tmp_path: Path) -> None:
    config = TrainConfig(data, tmp_path, cfg="n", imgsz=64, batch=2, device="cpu", budget=200 * MIB, epochs=1)
    with pytest.raises(CannotFit, match=r"136 MiB.*\(200 MiB minus 64\.\d MiB for loaded batches and the guard\)"):
        train(config, RecordingProgress())


@dataclass
class LinearNeed:
    """Needs 100 MiB plus 10 MiB per image."""

    def predict(self, settings: Settings) -> SimpleNamespace:
        return SimpleNamespace(device=SimpleNamespace(high=(100 + 10 * settings.batch) * MIB))


@pytest.mark.parametrize(("budget", "batch"), [(10_000, 24), (200, 10), (115, 2), (50, 2)])
def test_the_automatic_batch_is_at_least_two_images_and_at_most_all(budget: int, batch: int) -> None:
    predictor: Any = LinearNeed()
    settings = _plan_training._with_largest_batch(Settings(batch=1, size=64), budget * MIB, predictor, 24)
    assert settings.batch == batch


def test_a_plan_file_is_carried_out(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    planned = plan_of(data)
    replace(planned, settings=replace(planned.settings, checkpointing=("model.2",))).save(path)
    assert plan_of(data, plan=path).settings.checkpointing == ("model.2",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": 4}, "is for batch 2 at 64, and the run has batch 4 at 64"),
        ({"imgsz": 96}, "and the run has batch 2 at 96"),
        ({"budget": 100 * MIB}, "may need up to .*, and there are"),
    ],
)
def test_a_plan_for_something_else_is_refused(
    data: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "plan.json"
    plan_of(data).save(path)
    config = {"cfg": "n", "imgsz": 64, "batch": 2, "epochs": 1, "device": "cpu", "plan": path, **changes}
    with pytest.raises(UsageError, match=message):
        train(TrainConfig(data, tmp_path / "run", **config), RecordingProgress())
