"""Training with a teacher: whole runs, small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from oomph.detect import StepStats, TrainConfig, read_weights, save_weights, train, yolov5
from oomph.detect.dataset import DEMO_NAMES
from oomph.detect.training._teacher import read_teacher, take_anchors
from oomph.errors import MissingFile, UsageError

from .runs import RecordingProgress, Stopped, small_config

ANCHORS = tuple(tuple((8.0 * side, 9.0 * side) for side in range(3 * level + 1, 3 * level + 4)) for level in range(3))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a teacher that isn't trained, with anchors of its own."""
    torch.manual_seed(3)
    file = tmp_path_factory.mktemp("teacher") / "teacher.pt"
    save_weights(file, yolov5("s", 4, ANCHORS), DEMO_NAMES)
    return file


def config_of(data: Path, run_dir: Path, teacher: Path, distill: str = "both") -> TrainConfig:
    return small_config(data, run_dir, teacher=teacher, distill=distill)


class StopInSecondEpoch(RecordingProgress):
    def on_step(self, stats: StepStats) -> None:
        super().on_step(stats)
        if (stats.epoch, stats.iteration) == (2, 2):
            raise Stopped


@pytest.mark.medium
@pytest.mark.usefixtures("quick_predictions")
def test_a_student_is_trained_saved_and_resumed_bit_for_bit(demo_data: Path, tmp_path: Path, teacher: Path) -> None:
    whole, stopped = (config_of(demo_data, tmp_path / name, teacher) for name in ("whole", "stopped"))
    progress = RecordingProgress()
    result = train(whole, progress)
    assert result.epochs == 2
    assert "teacher: yolov5s with 7,030,417 parameters, the student has 1,769,329" in progress.messages
    assert "the student gets the teacher's anchors: outputs can't be compared with others" in progress.messages
    for row in progress.rows:
        parts = [row[name] for name in ("box_loss", "obj_loss", "cls_loss", "distill_loss")]
        assert row["loss"] == pytest.approx(sum(parts))
        assert min(parts) > 0
    header = (whole.run_dir / "results.csv").read_text().splitlines()[0].split(",")
    assert header[:6] == ["epoch", "loss", "box_loss", "obj_loss", "cls_loss", "distill_loss"]
    weights = read_weights(whole.run_dir / "weights" / "last.pt")
    assert (weights.size, weights.classes, weights.names) == ("n", 4, DEMO_NAMES)
    expected = read_weights(teacher)
    assert torch.equal(weights.build().head.anchors, expected.build().head.anchors)

    copied = tmp_path / "copied.pt"
    copied.write_bytes(teacher.read_bytes())
    with pytest.raises(Stopped):
        train(replace(stopped, teacher=copied, checkpoint_minutes=0.0), StopInSecondEpoch())
    copied.unlink()  # the run has its own copy
    train(replace(stopped, teacher=copied), RecordingProgress(), resume=True)
    resumed = read_weights(stopped.run_dir / "weights" / "last.pt").state
    assert all(torch.equal(resumed[name], value) for name, value in weights.state.items())
    kept = read_weights(stopped.run_dir / "weights" / "teacher.pt").state
    assert all(torch.equal(kept[name], value) for name, value in expected.state.items())


@pytest.mark.medium
@pytest.mark.usefixtures("quick_predictions")
@pytest.mark.large
def test_a_teacher_changes_what_is_learned_but_not_without_weight(demo_data: Path, tmp_path: Path) -> None:
    torch.manual_seed(3)
    default_anchors = tmp_path / "teacher.pt"
    save_weights(default_anchors, yolov5("s", 4), DEMO_NAMES)
    base = small_config(demo_data, tmp_path / "alone", epochs=1)
    runs = {
        "alone": base,
        "weightless": replace(base, teacher=default_anchors, distill_gain=0.0),
        "response": replace(base, teacher=default_anchors),
        "feature": replace(base, teacher=default_anchors, distill="feature"),
    }
    states = {}
    for name, config in runs.items():
        train(replace(config, run_dir=tmp_path / name), RecordingProgress())
        states[name] = read_weights(tmp_path / name / "weights" / "last.pt").state["model.0.conv.weight"]
    torch.testing.assert_close(states["weightless"], states["alone"], rtol=1e-4, atol=1e-6)
    for name in ("response", "feature"):
        assert not torch.allclose(states[name], states["alone"], rtol=1e-4, atol=1e-6)


@pytest.mark.medium
@pytest.mark.usefixtures("quick_predictions")
def test_a_student_may_be_larger_and_of_another_backbone(demo_data: Path, tmp_path: Path) -> None:
    file = tmp_path / "n.pt"
    save_weights(file, yolov5("n", 4), DEMO_NAMES)
    progress = RecordingProgress()
    train(small_config(demo_data, tmp_path / "run", cfg="shufflenet", epochs=1, teacher=file), progress)
    assert "the teacher is smaller than the student" in progress.messages
    assert read_weights(tmp_path / "run" / "weights" / "last.pt").size == "shufflenet"


@pytest.mark.medium
@pytest.mark.usefixtures("quick_predictions")
def test_a_wrong_teacher_is_refused_before_planning(demo_data: Path, tmp_path: Path, teacher: Path) -> None:
    other = tmp_path / "other.pt"
    save_weights(other, yolov5("n", 2), ["a", "b"])
    with pytest.raises(UsageError, match="has 2 classes and the data has 4; pass a teacher that was trained on"):
        train(config_of(demo_data, tmp_path / "run", other), RecordingProgress())
    with pytest.raises(MissingFile, match=r"there is no file '.*gone.pt'"):
        train(config_of(demo_data, tmp_path / "run", tmp_path / "gone.pt"), RecordingProgress())
    torch.save({"weight": torch.zeros(3)}, other)
    with pytest.raises(UsageError, match="are not those of YOLOv5"):
        train(config_of(demo_data, tmp_path / "run", other), RecordingProgress())
    assert not (tmp_path / "run").exists()
    with pytest.raises(UsageError, match="distill is 'all'; choose one of response, feature, both"):
        config_of(demo_data, tmp_path / "run", teacher, "all")


def test_classes_in_another_order_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "teacher.pt"
    save_weights(file, yolov5("n", 2), ["cat", "dog"])
    assert read_teacher(file, ["cat", "dog"]).names == ("cat", "dog")
    assert read_teacher(file, ["Katze", "Hund"]).classes == 2  # other names may mean the same
    with pytest.raises(UsageError, match=r"in another order \('cat, dog'\); write them"):
        read_teacher(file, ["dog", "cat"])


def test_anchors_are_taken_from_the_teacher() -> None:
    student, teacher = yolov5("n", 2), yolov5("n", 2, ANCHORS)
    assert take_anchors(student, teacher)
    assert torch.equal(student.head.anchors, teacher.head.anchors)
    assert not take_anchors(student, teacher)
