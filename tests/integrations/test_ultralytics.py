"""Ultralytics, run for real. `make test-ultralytics` installs it."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import oomph
from oomph.errors import RetriesExhausted, UsageError
from oomph.monitor import load_record
from oomph.units import MIB

from .forwards import Forwards
from .yolo_runs import Outcome, go_offline, largest_difference, save_dataset, save_network, train

pytestmark = [
    pytest.mark.ultralytics,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]
REPO = Path(__file__).parents[2]


@pytest.fixture(autouse=True, scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> None:
    if "ultralytics" not in sys.modules:
        go_offline(tmp_path_factory.mktemp("settings"))
    pytest.importorskip("ultralytics")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_dataset(tmp_path_factory.mktemp("data") / "images")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_network(tmp_path_factory.mktemp("network"))


def yolo(name: str) -> Any:
    from ultralytics import YOLO

    return YOLO(name)


def guarded(name: str, **options: Any) -> Any:
    from oomph.integrations.ultralytics import add_guard

    model = yolo(name)
    return model, add_guard(model, **options)


def assert_same(outcome: Outcome, expected: Outcome, tolerance: float = 1e-5) -> None:
    """Compare weights, the moving average, logged losses and the number of updates."""
    assert outcome.updates == expected.updates
    assert outcome.batch == expected.batch
    assert len(outcome.losses) == len(expected.losses)
    for ours, theirs in zip(outcome.losses, expected.losses, strict=True):
        assert ours == pytest.approx(theirs, rel=tolerance)
    assert largest_difference(outcome.weights, expected.weights) < tolerance
    assert largest_difference(outcome.averages, expected.averages) < tolerance


@pytest.mark.parametrize("end_to_end", [False, True])
def test_six_batches_with_out_of_memory_errors_equal_the_undisturbed_run(
    data: Path, tmp_path: Path, *, end_to_end: bool
) -> None:
    name = save_network(tmp_path, end_to_end=end_to_end)
    options: dict[str, Any] = {"epochs": 2, "nbs": 8}  # two batches are accumulated
    expected = train(yolo(name), data, **options)
    model, training = guarded(name)
    outcome = train(model, data, failing=Forwards({2, 3, 9}), **options)
    assert outcome.forwards.raised == 3
    assert expected.updates == 3
    assert len(expected.losses) == 6
    assert_same(outcome, expected)
    assert training.guard.notices == ()
    assert largest_difference(expected.initial, expected.weights) > 1e-2


@pytest.mark.parametrize(
    "name",
    [
        "yolov8n-obb.yaml",
        "yolov8n-seg.yaml",
        "yolov8n-pose.yaml",
        "yolov8n-cls.yaml",
        "yolo26n-obb.yaml",
        "yolo26n-seg.yaml",
        "yolo26n-pose.yaml",
    ],
)
def test_gradients_of_other_tasks_are_those_of_the_whole_batch(name: str) -> None:
    from oomph.integrations._ultralytics_loss import BatchLoss
    from oomph.integrations.ultralytics import describe

    described = describe(yolo(name))
    torch.manual_seed(0)
    network = described.job.model()
    for module in network.train().modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    images, targets = described.job.batch(6, 64)
    batch = {"img": images, **targets}
    if "bboxes" in targets:
        kept = torch.rand(len(targets["cls"])) > 0.4  # so that micro-batches have different numbers of boxes
        batch.update({key: targets[key][kept] for key in targets if len(targets[key]) == len(kept)})
        batch["bboxes"] = torch.rand_like(batch["bboxes"]) * 0.4 + 0.3
    gradients = []
    for micro_batch in (None, 2):
        loss = BatchLoss(network)
        loss.begin(batch)
        optimizer = torch.optim.SGD([param for param in network.parameters() if param.requires_grad], 0.1)
        guard = oomph.guard(model=network, optimizer=optimizer, micro_batch=micro_batch, **loss.options())
        report = guard.backward(batch)
        items = loss.items(report.metrics)
        gradients.append({key: param.grad for key, param in network.named_parameters() if param.grad is not None})
        gradients[-1].update({f"items.{key}": value for key, value in items.items()}, loss=report.loss)
        optimizer.zero_grad()
        guard.close()
    assert gradients[0].keys() == gradients[1].keys()
    assert gradients[0]["model.0.conv.weight"].abs().max() > 0
    assert largest_difference(*gradients) < 1e-4


def test_an_unsplit_run_is_the_plain_run(tiny: str, data: Path) -> None:
    expected = train(yolo(tiny), data, freezes_statistics=False)
    model, training = guarded(tiny)
    outcome = train(model, data, freezes_statistics=False)
    assert_same(outcome, expected, 1e-6)
    assert training.guard.notices == ()


def test_mixed_precision_in_micro_batches(tiny: str, data: Path) -> None:
    def enable(trainer: Any) -> None:
        trainer.amp = True  # Ultralytics disables it on the CPU

    expected = train(yolo(tiny), data, prepare=enable)
    model, training = guarded(tiny, guard_options={"micro_batch": 2})
    outcome = train(model, data, prepare=enable)
    assert outcome.forwards.count == 2 * expected.forwards.count
    assert training.guard.config.precision == "amp-bf16"
    assert_same(outcome, expected, 0.02)  # gradients of micro-batches are rounded to bfloat16
    assert expected.losses != train(yolo(tiny), data).losses


def test_the_scaler_of_the_trainer_scales_every_micro_batch(tiny: str, data: Path) -> None:
    def scale(trainer: Any) -> None:
        trainer.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    expected = train(yolo(tiny), data, prepare=scale)
    model, training = guarded(tiny, guard_options={"micro_batch": 2})
    assert_same(train(model, data, prepare=scale, failing=Forwards({3})), expected)
    assert training.guard.scaler is not None
    assert_same(expected, train(yolo(tiny), data))


def test_the_record_has_every_batch_and_is_closed(tiny: str, data: Path, tmp_path: Path) -> None:
    model, training = guarded(tiny, record=tmp_path / "run.jsonl")
    outcome = train(model, data, failing=Forwards({1}))
    record = load_record(tmp_path / "run.jsonl")
    assert [step["loss"] for step in record.steps] == pytest.approx([losses[0] for losses in outcome.losses])
    assert record.steps[0]["micro_batches"] == 2
    assert [event["event"] for event in record.events if event["event"] in {"oom", "end"}] == ["oom", "end"]
    assert training.guard is not None
    assert "loss" not in vars(model.trainer.model)


def test_the_trainer_keeps_its_batch_in_the_first_epoch(tiny: str, data: Path) -> None:
    plain = train(yolo(tiny), data, failing=Forwards({1}))
    assert plain.batch == 2  # Ultralytics halves it
    model, _ = guarded(tiny)
    assert train(model, data, failing=Forwards({1})).batch == 4


@pytest.mark.parametrize("epoch", [0, 1])
def test_the_emergency_checkpoint_resumes(tiny: str, data: Path, tmp_path: Path, epoch: int) -> None:
    options: dict[str, Any] = {"epochs": 3, "batch": 6, "nbs": 6, "project": str(tmp_path)}
    model, _ = guarded(tiny)
    failing = Forwards({1 + 2 * epoch}, from_then_on=True)
    with pytest.raises(RetriesExhausted) as raised:
        train(model, data, failing=failing, **options)
    path = Path(str(raised.value.checkpoint))
    assert path.name == "emergency.pt"
    assert "loss" not in vars(model.trainer.model)
    resumed, training = guarded(str(path))
    outcome = train(resumed, data, resume=True, batch=6)
    assert resumed.trainer.start_epoch == 1
    assert len(outcome.losses) == 2 * 2
    assert training.guard is not None


def test_a_budget_plans_the_micro_batch(tiny: str, data: Path, tmp_path: Path) -> None:
    from oomph.machine import rss_bytes

    model, training = guarded(tiny, budget=rss_bytes() + 200 * MIB, record=tmp_path / "run.jsonl")
    outcome = train(model, data, batch=12, imgsz=256)
    assert outcome.batch == 12
    assert training.guard.config.micro_batch in range(1, 12)
    assert any(event["event"] == "plan" for event in load_record(tmp_path / "run.jsonl").events)


def test_prediction_is_that_of_a_job_written_by_hand(tiny: str) -> None:
    from ultralytics.cfg import get_cfg

    from oomph.integrations.ultralytics import describe

    network: Any = yolo(tiny).model
    network.args = get_cfg()

    def batch(samples: int, size: Any) -> dict[str, Any]:
        return {
            "img": torch.rand(samples, 3, size, size),
            "batch_idx": torch.arange(samples).repeat_interleave(8).float(),
            "cls": torch.zeros(8 * samples, 1),
            "bboxes": torch.rand(8 * samples, 4),
        }

    def network_loss(model: Any, batch: Any) -> Any:
        return model.loss(batch)[0].sum()

    job = oomph.Job(
        model=lambda: network,
        batch=batch,
        step=network_loss,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), 1e-3),
    )
    settings = oomph.Settings(batch=4, size=128)
    expected = oomph.predict(job, settings, "cpu").allocated.value
    model = yolo(tiny)
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    assert oomph.predict(model, settings, "cpu").allocated.value == pytest.approx(expected, rel=0.1)
    assert describe(model).settings == oomph.Settings(batch=16, size=640, precision="amp-fp16", allocator="default")
    assert all(torch.equal(value, before[name]) for name, value in model.model.state_dict().items())
    assert getattr(model.model, "criterion", None) is None


def test_what_cannot_be_guarded_is_refused(tiny: str, data: Path) -> None:
    from oomph.integrations.ultralytics import add_guard, describe

    with pytest.raises(UsageError, match="a Linear can't be guarded"):
        add_guard(torch.nn.Linear(1, 1))
    with pytest.raises(UsageError, match="guard_options contains 'loss'"):
        guarded(tiny, guard_options={"loss": None})
    for wrong in ({"guard_options": {"micro_batch": 0.5}}, {"budget": "8 gigs"}, {"record": True}):
        with pytest.raises(UsageError, match=r"micro_batch is 0.5|is not a size|record is True"):
            guarded(tiny, **wrong)
    with pytest.raises(UsageError, match="can't be predicted alone"):
        describe(yolo(tiny).model)

    model, _ = guarded(tiny)
    with pytest.raises(UsageError, match="compiled"):
        train(model, data, compile=True)


@pytest.mark.parametrize("device", ["0,1", [0, 1]])
def test_several_gpus_are_refused_before_ultralytics_starts_a_process_for_each(
    tiny: str, data: Path, tmp_path: Path, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ultralytics.engine import trainer as engine

    started: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(engine, "select_device", lambda *_, **__: torch.device("cuda:0"))
    monkeypatch.setattr(engine, "generate_ddp_command", lambda _: (["true"], None))
    monkeypatch.setattr(engine.subprocess, "run", lambda command, **_: started.append(command))
    model, _ = guarded(tiny)
    own_trainer = {"trainer": model.task_map["detect"]["trainer"]}
    for model_of_two, options in ((model, {}), (copy.deepcopy(model), own_trainer)):
        with pytest.raises(UsageError, match="training on several GPUs can't be guarded; pass one device="):
            train(model_of_two, data, device=device, **options)
        assert model_of_two.trainer is None
    assert started == []
    model.reset_callbacks()  # takes the guard off
    with pytest.raises(FileNotFoundError, match="no checkpoint was saved"):  # by the process, which didn't run
        train(model, data, device=device, project=str(tmp_path))
    assert started == [["true"]]


def test_a_copy_of_a_model_trains_itself(tiny: str, data: Path) -> None:
    model, _ = guarded(tiny)
    duplicate = copy.deepcopy(model)
    train(duplicate, data)
    assert duplicate.trainer is not None
    assert model.trainer is None


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = [str(REPO), str(REPO / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    return subprocess.run(
        [sys.executable, *arguments], check=False, env=env, capture_output=True, text=True, timeout=180
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs the limits of Linux")
def test_a_limit_that_kills_the_trainer_splits_batches(tmp_path: Path) -> None:
    malloc = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(MIB)}
    processes = {
        kind: run_python("-m", "tests.integrations.yolo_process", kind, str(tmp_path / kind), **malloc)
        for kind in ("plain", "guarded")
    }
    assert processes["plain"].returncode != 0
    assert "can't allocate memory" in processes["plain"].stderr
    assert processes["guarded"].returncode == 0, processes["guarded"].stderr
    micro_batches = json.loads((tmp_path / "guarded/micro_batches.json").read_text())
    assert min(micro_batches) > 1


def test_the_example_trains(tmp_path: Path) -> None:
    script = REPO / "examples/ultralytics/train.py"
    program = (
        "import os, runpy, sys; from tests.integrations.conftest import BENCHMARKS; "
        "from tests.integrations.yolo_runs import go_offline; from pathlib import Path; "
        "os.chdir(sys.argv[2]); go_offline(Path()); runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    process = run_python("-c", program, str(script), str(tmp_path))
    assert process.returncode == 0, process.stderr
    assert "micro-batches" in process.stdout
