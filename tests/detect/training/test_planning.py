"""What a run holds beside the step that is predicted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oomph.detect import EmbeddedSize, OrderForm, Recipe, detection_job, train, write_embedded, yolov5
from oomph.detect.training._planning import Kept, _largest, _update, kept_weights
from oomph.errors import CannotFit
from oomph.planner import Plan
from oomph.prediction import Prediction, predict
from oomph.settings import Settings
from oomph.units import MIB

from .test_course import Quiet


def form(optimizer: str = "SGD", frozen: int = 0) -> OrderForm:
    recipe = replace(Recipe(), optimizer=optimizer)
    return OrderForm(data=Path("data.yaml"), folder=Path("run"), network="n", recipe=recipe, freeze=frozen)


@pytest.fixture(scope="module")
def made() -> Prediction:
    return predict(detection_job("n", 4), Settings(batch=2, size=64), "H200")


def test_the_average_is_always_there_and_as_large_as_the_weights() -> None:
    model = yolov5("n", 4)
    size = sum(one.numel() * one.element_size() for one in model.state_dict().values())
    for device in ("cuda", "cpu"):
        assert kept_weights(form(), 4, "given", torch.device(device)).average == pytest.approx(size, rel=0.001)


@pytest.mark.parametrize(
    ("device", "optimizer", "update", "times"),
    [
        ("cuda", "SGD", "fused", 1),
        ("cuda", "AdamW", "fused", 1),
        ("cuda", "SGD", "given", 2),
        ("cuda", "AdamW", "given", 1),
        ("cpu", "SGD", "given", 3),
        ("cpu", "AdamW", "given", 4),
    ],
)
def test_what_an_update_copies_depends_on_device_and_optimizer(
    device: str, optimizer: str, update: str, times: int
) -> None:
    weights = sum(one.numel() * one.element_size() for one in yolov5("n", 4).parameters())
    copy = kept_weights(form(optimizer), 4, update, torch.device(device)).copy
    assert copy == pytest.approx(times * weights, rel=0.02)  # buffers of the average, on the CPU


@pytest.mark.parametrize(
    ("device", "precision", "update"),
    [("cuda", "amp-bf16", "fused"), ("cuda", "fp32", "fused"), ("cuda", "amp-fp16", "given"), ("cpu", "fp32", "given")],
)
def test_weights_are_updated_by_one_kernel_on_a_gpu(device: str, precision: str, update: str) -> None:
    assert _update(precision, torch.device(device)) == update


def test_frozen_layers_are_averaged_and_not_copied() -> None:
    all_of_it = kept_weights(form("AdamW"), 4, "given", torch.device("cuda"))
    part = kept_weights(form("AdamW", frozen=10), 4, "given", torch.device("cuda"))
    assert part.average == all_of_it.average
    assert part.copy < 0.6 * all_of_it.copy


def test_a_copy_counts_only_where_an_update_with_it_is_the_peak(made: Prediction) -> None:
    update = dict(made.phases)["steady step, optimizer"]
    above = int(made.allocated.value) - update
    assert above > 0
    assert Kept(100, above - 1).beside(made).allocated.value == made.allocated.value + 100
    assert Kept(100, above + 50).beside(made).allocated.value == made.allocated.value + 150
    assert Kept(100, 0).beside(made).device.high == made.device.high + 100


class BatchSpec(Exception):
    """The run needn't go on."""


class UpToPlan(Quiet):
    def planned(self, made: Plan) -> None:
        super().planned(made)
        raise BatchSpec


def test_plans_count_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_embedded(tmp_path, EmbeddedSize(train=4, val=2))
    asked = OrderForm(data=data, folder=tmp_path / "run", network="n", size=64, batch=2, device="cpu")
    needs = []
    for kept in (Kept(0, 0), Kept(10 * MIB, 0)):
        monkeypatch.setattr("oomph.detect.training._planning.kept_weights", lambda *_, kept=kept: kept)
        teller = UpToPlan()
        with pytest.raises(BatchSpec):
            train(asked, teller)
        needs.append(teller.plan.planned_need.allocated.value)
    assert needs[1] - needs[0] == 10 * MIB


def test_how_weights_are_updated_follows_the_precision_that_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lowered(asked: Settings, budget: int, needs: Any, **_: Any) -> Plan:
        found = needs(asked)
        return Plan(asked, replace(asked, precision="amp-fp16"), budget, found, found, ())

    monkeypatch.setattr("oomph.detect.training._planning.plan", lowered)
    monkeypatch.setattr(
        "oomph.detect.training._planning._update", lambda precision, _: "given" if precision == "amp-fp16" else "fused"
    )
    data = write_embedded(tmp_path, EmbeddedSize(train=4, val=2))
    teller = UpToPlan()
    with pytest.raises(BatchSpec):
        train(OrderForm(data=data, folder=tmp_path / "run", network="n", size=64, batch=2, device="cpu"), teller)
    assert (teller.plan.requested.optimizer, teller.plan.settings.optimizer) == ("fused", "given")


def test_no_batch_is_planned_larger_than_the_data(tmp_path: Path) -> None:
    data = write_embedded(tmp_path, EmbeddedSize(train=4, val=2))
    usual = OrderForm(data=data, folder=tmp_path / "run", network="n", size=64, epochs=1, device="cpu")
    plans = []
    for batch in (4, 100, -1):
        teller = UpToPlan()
        with pytest.raises(BatchSpec):
            train(replace(usual, batch=batch), teller)
        plans.append(teller.plan)
    exact, large, largest = plans
    assert large.planned_need.allocated == exact.planned_need.allocated
    assert large.settings.batch == 100  # accumulation goes by what was asked for
    assert largest.settings.batch == 4


def test_a_budget_that_is_too_small_says_what_was_taken_off_it(tmp_path: Path) -> None:
    data = write_embedded(tmp_path, EmbeddedSize(train=4, val=2))
    asked = OrderForm(
        data=data, folder=tmp_path, network="n", size=64, batch=2, device="cpu", budget=200 * MIB, epochs=1
    )
    with pytest.raises(CannotFit, match=r"the budget is 136 MiB: 200 MiB less 64\.\d MiB for batches that wait"):
        train(asked, Quiet())


@dataclass
class Needs:
    """A run whose images need 10 MiB each."""

    images: int

    def needs(self, settings: Settings) -> SimpleNamespace:
        return SimpleNamespace(device=SimpleNamespace(high=(100 + 10 * settings.batch) * MIB))


@pytest.mark.parametrize(("budget", "batch"), [(10_000, 24), (200, 10), (115, 2), (50, 2)])
def test_the_largest_batch_is_at_most_the_data_and_at_least_two_images(budget: int, batch: int) -> None:
    found = _largest(Settings(batch=1, size=64), budget * MIB, Needs(24))  # type: ignore[arg-type]
    assert found.batch == batch


def test_in_a_heap_what_an_update_copies_lies_apart(made: Prediction) -> None:
    assert kept_weights(form(), 4, "given", torch.device("cpu")).apart
    assert not kept_weights(form(), 4, "given", torch.device("cuda")).apart
    assert Kept(100, 50, apart=True).beside(made).allocated.value == made.allocated.value + 150
