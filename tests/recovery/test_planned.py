from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import oomph
from oomph import document
from oomph.planner import Plan
from oomph.prediction import Prediction
from oomph.settings import Settings
from oomph.units import GIB

SETTINGS = Settings(batch=8, micro_batch=4, checkpointing=("1", "2"), optimizer="fused")


def plan_of(settings: Settings, prediction: Prediction) -> Plan:
    return Plan(Settings(batch=8), settings, 64 * GIB, prediction, prediction, ())


def build() -> nn.Sequential:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(6, 6), nn.GELU())
    return nn.Sequential(nn.Linear(6, 6), block, copy.deepcopy(block), nn.Linear(6, 3)).double()


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(8, 6).double(), torch.randint(0, 3, (8,))


def test_guard_carries_out_a_plan_exactly(prediction: Prediction) -> None:
    planned, plain = build(), build()
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (planned, plain)]
    guard = oomph.guard(
        model=planned,
        optimizer=optimizers[0],
        loss=nn.functional.cross_entropy,
        plan=plan_of(SETTINGS, prediction),
    )
    reference = oomph.guard(model=plain, optimizer=optimizers[1], loss=nn.functional.cross_entropy)
    assert [guard.step(batch()).micro_batches for _ in range(3)] == [2, 2, 2]
    for _ in range(3):
        reference.step(batch())
    assert "forward" in vars(planned[1])
    assert optimizers[0].param_groups[0]["fused"]
    for param, other in zip(planned.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(param, other, rtol=1e-12, atol=1e-14)


def test_mixed_precision_of_a_plan_is_the_guards(prediction: Prediction) -> None:
    model = build().float()
    plan = plan_of(Settings(batch=8, precision="amp-bf16"), prediction)
    seen = []

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        seen.append(outputs.dtype)
        return nn.functional.cross_entropy(outputs, targets)

    inputs, targets = batch()
    oomph.guard(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), loss=loss, plan=plan).step(
        (inputs.float(), targets)
    )
    assert set(seen) == {torch.bfloat16}


@pytest.mark.parametrize("options", [{"micro_batch": 2}, {"precision": "amp-bf16"}, {"budget": "1GiB"}])
def test_what_the_plan_sets_is_not_set_twice(prediction: Prediction, options: dict[str, object]) -> None:
    model = build()
    (name,) = options
    with pytest.raises(oomph.UsageError, match=f"{name} is given beside a plan"):
        oomph.guard(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), 0.1),
            loss=nn.functional.cross_entropy,
            plan=plan_of(SETTINGS, prediction),
            **options,  # type: ignore[arg-type]
        )
    assert "forward" not in vars(model[1])


def test_plan_survives_its_file(prediction: Prediction, tmp_path: Path) -> None:
    plan = plan_of(SETTINGS, prediction)
    plan.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    with pytest.raises(oomph.MissingFile):
        Plan.load(tmp_path / "other.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(oomph.InvalidFile, match="this is not a plan document"):
        Plan.load(tmp_path / "bad.json")


def test_the_record_contains_the_plan_and_its_prediction(prediction: Prediction, tmp_path: Path) -> None:
    plan, model = plan_of(SETTINGS, prediction), build()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with oomph.Recorder(tmp_path / "run.jsonl") as recorder:
        guard = oomph.guard(
            model=model, optimizer=optimizer, loss=nn.functional.cross_entropy, plan=plan, recorder=recorder
        )
        guard.step(batch())
    record = oomph.Record.load(tmp_path / "run.jsonl")
    planned, predicted, _ = record.events
    assert document.read("plan", 1, Plan, planned["plan"]) == plan
    assert (predicted["event"], predicted["budget"], predicted["target"]) == ("prediction", plan.budget, "cpu")
    assert predicted["allocated"] == int(prediction.allocated.value)
    assert record.steps[0]["lr"] == 0.1
    assert "fallbacks" not in record.steps[0]
