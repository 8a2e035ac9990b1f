from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oomph.errors import CannotFit, UsageError
from oomph.machine import find_target
from oomph.planner import Plan, ScriptPredictor, plan_script
from oomph.prediction import Prediction, predict_trace, trace_device
from oomph.script import ScriptRun, capture_script
from oomph.settings import Settings
from oomph.trace import EmulatedDevice
from oomph.units import MIB

SCRIPTS = Path(__file__).parents[1] / "script" / "scripts"
H200 = find_target("H200")
NEED = 500  # MiB beside the CUDA context that plannable.py needs, about


def script(name: str, *arguments: str, batch: int | None = None) -> ScriptRun:
    device = EmulatedDevice(trace_device(H200), H200.name, H200.memory)
    return ScriptRun(str(SCRIPTS / name), arguments, batch, device)


def budget(share: float) -> int:
    return int(share * NEED * MIB) + H200.outside[-1]


def carried_out(plan: Plan, file: Path, *arguments: str) -> Prediction:
    """Return the prediction of the script with the plan's steps carried out by hand."""
    plan.save(file)
    sizes = plan.settings.micro_batch_sizes
    flags = ("--plan", str(file), "--batch-size", str(sizes[0]), "--accumulate", str(len(sizes)), *arguments)
    capture = capture_script(script("plannable.py", *flags), 100)
    assert capture.loop.settings.batch == plan.requested.batch
    return predict_trace(capture.trace, plan.settings, H200)


@pytest.mark.large
@pytest.mark.parametrize("flags", [(), ("--closure",)])
def test_plan_carried_out_by_hand_needs_what_it_says(flags: tuple[str, ...], tmp_path: Path) -> None:
    plan = plan_script(script("plannable.py", *flags), H200, budget=budget(0.6))
    assert (plan.requested.batch, plan.requested.micro_batch) == (64, None)
    assert plan.requested_need.device.high > plan.budget >= plan.planned_need.device.high
    assert len(plan.settings.micro_batch_sizes) > 1
    assert len(set(plan.settings.micro_batch_sizes)) == 1
    needed = carried_out(plan, tmp_path / "plan.json")
    assert plan.planned_need.allocated.value == pytest.approx(needed.allocated.value, rel=0.01)
    assert plan.planned_need.device.value == pytest.approx(needed.device.value, rel=0.01)
    assert Plan.load(tmp_path / "plan.json") == plan


@pytest.mark.medium
def test_script_without_a_loader_is_checkpointed(tmp_path: Path) -> None:
    plan = plan_script(script("plannable.py", "--no-loader"), H200, budget=budget(0.8))
    assert plan.settings.micro_batch_sizes == (64,)
    assert set(plan.settings.checkpointing) & {"1", "2", "3"}  # the blocks
    assert "The batches don't come from a torch DataLoader, so the plan doesn't split them." in plan.notes
    needed = carried_out(plan, tmp_path / "plan.json", "--no-loader")
    assert plan.planned_need.allocated.value == pytest.approx(needed.allocated.value, rel=0.01)
    assert not any("batch" in step for step in plan.steps)


@pytest.mark.medium
def test_of_two_models_only_the_batch_is_planned() -> None:
    plan = plan_script(script("gan.py", batch=4096), H200, budget=H200.outside[-1] + 300 * MIB)
    micro_batch = plan.settings.micro_batch
    assert micro_batch is not None
    assert plan.settings == replace(plan.requested, micro_batch=micro_batch, allocator="expandable")
    assert "The script calls 2 models that it trains: only its batch and the allocator were planned." in plan.notes
    k = 4096 // micro_batch
    assert plan.steps == (
        "Set the environment variable PYTORCH_ALLOC_CONF=expandable_segments:True.",
        f"Set the DataLoader's batch_size to {micro_batch}.",
        f"Call optimizer.step() and optimizer.zero_grad() only after every {k} batches, and divide the loss by {k}.",
    )


@pytest.mark.large
def test_script_that_accumulates_keeps_its_batch() -> None:
    plan = plan_script(script("amp_accumulation.py", batch=8192), H200, budget=H200.outside[-1] + 160 * MIB)
    assert (plan.requested.batch, plan.requested.micro_batch) == (4 * 8192, 8192)
    assert plan.settings.batch == 4 * 8192
    assert plan.settings.precision == "amp-fp16"
    parts = len(plan.settings.micro_batch_sizes)
    assert parts > 4
    assert f"only after every {parts} batches, and divide the loss by {parts}." in " ".join(plan.steps)


@pytest.mark.large
def test_precision_needs_permission(tmp_path: Path) -> None:
    run = script("plannable.py", "--no-loader")
    plan = plan_script(run, H200, budget=budget(0.95), allow=("precision",))
    assert plan.settings.precision == "amp-bf16"
    needed = carried_out(plan, tmp_path / "plan.json", "--no-loader")
    assert plan.planned_need.allocated.value == pytest.approx(needed.allocated.value, rel=0.01)


@pytest.mark.large
def test_largest_batch_of_a_loader() -> None:
    run = script("plannable.py", "--batch-size", "4")
    plan = plan_script(run, H200, budget=budget(0.3), goal="largest-batch")
    assert 8 < plan.settings.batch < 64
    assert plan.planned_need.needed.high + H200.outside[-1] <= plan.budget
    assert plan.steps[-1] == f"Set the DataLoader's batch_size to {plan.settings.batch}."


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("amp_accumulation.py", "accumulates 4 batches for an update, so its batch is not in one piece; plan with"),
        pytest.param(
            "own_batches.py",
            "gets its batches without a torch DataLoader, so they can't be made larger; plan with",
            marks=pytest.mark.large,
        ),
    ],
)
def test_largest_batch_that_a_script_does_not_have(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan_script(script(name), H200, goal="largest-batch")


@pytest.mark.large
def test_module_that_cannot_run_twice_is_not_recomputed() -> None:
    run = script("runs_once.py")
    with pytest.raises(UsageError, match="ran already"):
        ScriptPredictor(run, H200, 100).predict(Settings(batch=64, allocator="default", checkpointing=("1",)))
    with pytest.raises(CannotFit, match="micro-batches of 64 need up to"):
        plan_script(run, H200, budget=H200.outside[-1] + 250 * MIB)


@pytest.mark.medium
def test_traces_are_shared_between_allocators() -> None:
    counts: list[int] = []
    predictor = ScriptPredictor(script("plannable.py"), H200, 100, counts.append)
    default = Settings(batch=64, allocator="default")
    needs = [predictor.predict(replace(default, allocator=allocator)) for allocator in ("default", "expandable")]
    assert predictor.profile(default).settings.batch == 64
    assert counts == [1]
    assert needs[0].allocated == needs[1].allocated
    assert needs[0].reserved != needs[1].reserved
    with pytest.raises(UsageError, match="amp-fp16 needs a gradient scaler, which a plan can't add to a script"):
        predictor.profile(replace(default, precision="amp-fp16"))
    with pytest.raises(UsageError, match="8-bit states of a script's optimizer can't be predicted"):
        predictor.profile(replace(default, optimizer="8bit"))
    assert counts == [1]


@pytest.mark.parametrize("name", ["size", "optimizer"])
def test_permission_that_a_script_does_not_have(name: str) -> None:
    with pytest.raises(UsageError, match=f"a plan can't change the {name} of a script; allow precision, or nothing"):
        plan_script(script("nowhere.py"), H200, allow=(name,))


def test_budget_below_what_cuda_takes() -> None:
    with pytest.raises(CannotFit, match="CUDA alone takes"):
        plan_script(script("nowhere.py"), H200, budget="100MiB")
