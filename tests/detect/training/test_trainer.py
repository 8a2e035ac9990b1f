"""Whole training runs, small: results, checkpoints and resuming."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import oomph
from oomph import document
from oomph.detect import (
    DetectResult,
    InferenceConfig,
    NmsConfig,
    StepStats,
    TrainResult,
    detect_objects,
    read_weights,
    train,
    validate_weights,
)
from oomph.detect.dataset import DEMO_NAMES
from oomph.detect.training import _train
from oomph.detect.training._trainer import Trainer
from oomph.planner import Plan

from .runs import RecordingProgress, Stopped, small_config

REPO = Path(__file__).parents[3]


pytestmark = pytest.mark.usefixtures("quick_predictions")


@pytest.fixture(scope="module")
def finished_run(
    demo_data: Path, quick_predictions: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainResult, Path]:
    """An uninterrupted run."""
    del quick_predictions
    run_dir = tmp_path_factory.mktemp("runs") / "one"
    return train(small_config(demo_data, run_dir), RecordingProgress()), run_dir


def results(run_dir: Path) -> list[list[str]]:
    """Return the columns of results.csv that don't depend on speed or memory."""
    return [line.split(",")[:10] for line in (run_dir / "results.csv").read_text().splitlines()]


def assert_same_run(run_dir: Path, expected_dir: Path) -> None:
    assert results(run_dir) == results(expected_dir)
    state, expected = (read_weights(folder / "weights" / "last.pt").state for folder in (run_dir, expected_dir))
    assert all(torch.equal(state[name], value) for name, value in expected.items())


@pytest.mark.medium
def test_a_run_writes_all_its_files(finished_run: tuple[TrainResult, Path]) -> None:
    result, run_dir = finished_run
    assert result.epochs == 2
    names = {path.name for path in run_dir.iterdir()}
    assert names >= {"results.csv", "record.jsonl", "plan.json", "config.json", "settings.yaml", "data_issues.json"}
    assert names >= {"labels.png", "train_batch0.png", "results.png", "memory.png", "val_predictions.png", "weights"}
    assert names >= {"PR_curve.png", "F1_curve.png", "P_curve.png", "R_curve.png", "confusion_matrix.png"}
    assert (run_dir / "results.csv").read_text().count("\n") == 3
    assert result.best is not None
    assert result.best["epoch"] == result.saved_epoch  # the first of equals, in the result and in the file
    weights = read_weights(run_dir / "weights" / "last.pt")
    assert (weights.size, weights.classes, weights.names) == ("n", 4, DEMO_NAMES)
    record = oomph.Record.load(run_dir / "record.jsonl")
    assert len(record.steps) == 6
    assert max(step["lr"] for step in record.steps if "grad_norm" in step) > 0
    assert document.read("plan", 1, Plan, record.events[0]["plan"]) == result.plan


@pytest.mark.medium
def test_losses_are_the_means_of_their_epoch(finished_run: tuple[TrainResult, Path]) -> None:
    header, *rows = results(finished_run[1])
    assert header == [
        "epoch",
        "loss",
        "box_loss",
        "obj_loss",
        "cls_loss",
        "map50",
        "map50_95",
        "map_small",
        "map_medium",
        "map_large",
    ]
    for row in rows:
        loss, *parts = map(float, row[1:5])
        assert loss == pytest.approx(sum(parts), rel=1e-5)
        assert min(parts) > 0


@pytest.mark.medium
def test_trained_weights_can_be_validated_and_used(
    demo_data: Path, finished_run: tuple[TrainResult, Path], tmp_path: Path
) -> None:
    config = InferenceConfig(finished_run[1] / "weights" / "last.pt", 64, "cpu", nms=NmsConfig(0.001, 0.5))
    assert validate_weights(replace(config, nms=None), demo_data, batch=4).images == 8
    result: DetectResult = detect_objects(config, demo_data.parent / "images" / "val", tmp_path / "out")
    assert len(result.images) == 8
    assert len(list((tmp_path / "out").glob("*.jpg"))) == 8


@pytest.mark.medium
def test_an_interrupted_run_resumes_bit_for_bit(
    demo_data: Path, finished_run: tuple[TrainResult, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a batch prefetched but not trained, as on a GPU."""

    def prefetch(batches: Iterable[Any], device: torch.device) -> Iterator[Any]:
        del device
        iterator = iter(batches)
        current = next(iterator)
        for batch in iterator:
            yield current
            current = batch
        yield current

    class StopInSecondEpoch(RecordingProgress):
        def on_step(self, stats: StepStats) -> None:
            super().on_step(stats)
            if (stats.epoch, stats.iteration) == (2, 2):  # the checkpoint has one step less
                raise Stopped

    monkeypatch.setattr("oomph.detect.training._trainer.prefetch_to_device", prefetch)
    run_dir = tmp_path / "run"
    with pytest.raises(Stopped):
        train(small_config(demo_data, run_dir, checkpoint_minutes=0.0), StopInSecondEpoch())
    assert [event.get("error") for event in oomph.Record.load(run_dir / "record.jsonl").events][-2:] == [
        "Stopped",
        None,
    ]
    assert (run_dir / "val_predictions.png").is_file()  # written at once
    assert (run_dir / "predictions.npz").is_file()
    progress = RecordingProgress()
    train(small_config(demo_data, run_dir), progress, resume=True)
    assert_same_run(run_dir, finished_run[1])
    assert "resumed at iteration 4 of 6" in progress.messages
    assert progress.steps == 2


@pytest.mark.medium
def test_a_run_on_a_small_backbone_resumes_bit_for_bit(demo_data: Path, tmp_path: Path) -> None:
    class StopInSecondEpoch(RecordingProgress):
        def on_step(self, stats: StepStats) -> None:
            super().on_step(stats)
            if (stats.epoch, stats.iteration) == (2, 2):
                raise Stopped

    whole, stopped = (small_config(demo_data, tmp_path / name, cfg="mobilenet") for name in ("whole", "stopped"))
    train(whole, RecordingProgress())
    with pytest.raises(Stopped):
        train(replace(stopped, checkpoint_minutes=0.0), StopInSecondEpoch())
    train(stopped, RecordingProgress(), resume=True)
    assert_same_run(stopped.run_dir, whole.run_dir)
    assert read_weights(stopped.run_dir / "weights" / "last.pt").size == "mobilenet"


@pytest.mark.medium
@pytest.mark.large
def test_a_killed_process_resumes_bit_for_bit(
    demo_data: Path, finished_run: tuple[TrainResult, Path], tmp_path: Path
) -> None:
    code = f"""
from pathlib import Path
from oomph.detect import train
from tests.detect.training.runs import RecordingProgress, small_config
class PrintSteps(RecordingProgress):
    def on_step(self, stats):
        print(stats.epoch, stats.iteration, flush=True)
train(small_config(Path({str(demo_data)!r}), Path({str(tmp_path / "run")!r}), checkpoint_minutes=0.0), PrintSteps())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=REPO) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "2 2":
                os.kill(process.pid, signal.SIGKILL)
                break
        assert process.wait() == -signal.SIGKILL
    train(small_config(demo_data, tmp_path / "run"), RecordingProgress(), resume=True)
    assert_same_run(tmp_path / "run", finished_run[1])


@pytest.mark.medium
@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), pytest.param(signal.SIGTERM, SystemExit, marks=pytest.mark.large)],
)
def test_a_signal_at_the_end_of_an_epoch_keeps_its_row(
    demo_data: Path,
    finished_run: tuple[TrainResult, Path],
    tmp_path: Path,
    number: int,
    error: type[BaseException],
) -> None:
    class SignalBeforeLastStep(RecordingProgress):
        def on_step(self, stats: StepStats) -> None:
            super().on_step(stats)
            if stats.iteration == stats.iterations - 1:
                os.kill(os.getpid(), number)  # the guard finishes the next step, saves and stops

    run_dir = tmp_path / "run"
    with pytest.raises(error):
        train(small_config(demo_data, run_dir), SignalBeforeLastStep())
    assert (run_dir / "weights" / "state.pt").is_file()
    assert not (run_dir / "results.csv").exists()
    result = train(small_config(demo_data, run_dir), RecordingProgress(), resume=True)
    assert_same_run(run_dir, finished_run[1])
    assert result.best is not None
    assert (result.best["epoch"], result.best["micro_batches"], result.epochs) == (1, None, 2)


@pytest.mark.medium
def test_resuming_a_finished_run_trains_nothing(
    demo_data: Path, finished_run: tuple[TrainResult, Path], tmp_path: Path
) -> None:
    run_dir = shutil.copytree(finished_run[1], tmp_path / "run")
    progress = RecordingProgress()
    train(small_config(demo_data, run_dir), progress, resume=True)
    assert "all 2 epochs are already trained" in progress.messages
    assert progress.steps == 0
    assert [progress.tasks[f"{name}: image headers"] for name in ("train", "val")] == [24, 8]
    assert_same_run(run_dir, finished_run[1])


@pytest.mark.medium
def test_resume_rejects_other_classes_and_images(
    demo_data: Path, finished_run: tuple[TrainResult, Path], tmp_path: Path
) -> None:
    run_dir = shutil.copytree(finished_run[1], tmp_path / "run")
    text = demo_data.read_text().replace("path: .", f"path: {demo_data.parent}")
    other = tmp_path / "other.yaml"
    other.write_text(text + "  4: star\n")
    with pytest.raises(oomph.UsageError, match=r"classes have changed .* 5 .*star.*, before 4 \(disc, square"):
        train(small_config(other, run_dir), RecordingProgress(), resume=True)
    other.write_text(text.replace("train: images/train", "train: [images/train, images/val]"))
    with pytest.raises(oomph.UsageError, match=r"images have changed .* \(32 now, 24 before\); restore them"):
        train(small_config(other, run_dir), RecordingProgress(), resume=True)


@pytest.mark.medium
@pytest.mark.parametrize("implementation", ["fused", "given"])
def test_a_resumed_run_uses_the_optimizer_implementation_of_its_new_plan(
    finished_run: tuple[TrainResult, Path],
    demo_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    implementation: str,
) -> None:
    seen: list[Any] = []

    class InspectedTrainer(Trainer):
        def run(self) -> TrainResult:
            seen.extend(group["fused"] for group in self._parts.optimizer.param_groups)
            return super().run()

    def plan_training(*_: Any) -> Plan:
        plan = finished_run[0].plan
        return replace(plan, settings=replace(plan.settings, optimizer=implementation))

    monkeypatch.setattr(_train, "Trainer", InspectedTrainer)
    monkeypatch.setattr(_train, "plan_training", plan_training)
    run_dir = shutil.copytree(finished_run[1], tmp_path / "run")
    train(small_config(demo_data, run_dir), RecordingProgress(), resume=True)
    assert seen == [True if implementation == "fused" else None] * 3


@pytest.mark.large
def test_activation_checkpointing_is_used_where_micro_batches_do_not_suffice(tmp_path: Path) -> None:
    """In a separate process, so that its memory is that of this run alone."""
    code = """
import gc, json
from pathlib import Path
from oomph.detect import DemoSize, Yolov5, train, write_demo_dataset
from oomph.units import MIB
from tests.detect.training.runs import RecordingProgress, small_config
class CountCheckpointedLayers(RecordingProgress):
    def on_step(self, stats):
        networks = [item for item in gc.get_objects() if type(item) is Yolov5]
        self.layers = sorted(sum("forward" in vars(layer) for layer in network.model) for network in networks)
progress = CountCheckpointedLayers()
data = write_demo_dataset(Path("data"), DemoSize(train=4, val=2))
config = small_config(data, Path("run"), imgsz=512, batch=2, epochs=1, budget_above_start=396 * MIB)
result = train(config, progress)
print(json.dumps([result.plan.settings.checkpointing, progress.layers, result.predicted, result.measured]))
"""
    environment = {**os.environ, "PYTHONPATH": f"{REPO / 'src'}{os.pathsep}{REPO}"}
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment, check=True)
    checkpointing, layers, predicted, measured = json.loads(process.stdout)
    assert isinstance(checkpointing, list)
    assert all(path.startswith("model.") for path in checkpointing)
    assert layers[0] == 0  # the EMA
    assert layers[-1] > 0  # the network
    assert 0.85 < measured / predicted < 1.1, "two steps fragment the heap less than a long run"
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert (plan["requested"]["checkpointing"], plan["settings"]["checkpointing"]) == ("none", checkpointing)
    assert plan["changes"]
