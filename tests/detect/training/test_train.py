from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomph.cli import run
from oomph.detect import InferenceConfig, NmsConfig, TrainConfig, detect_objects, train
from oomph.detect.training import _train
from oomph.detect.training._train import resolve
from oomph.errors import CannotFit
from oomph.planner import Plan
from oomph.settings import Settings
from oomph.units import MIB
from tests.detect.red_squares import HEIGHT, SQUARES, WIDTH, write_red_squares

from .runs import RecordingProgress, StopAtMessage, Stopped, small_config


def test_the_plan_is_resolved_into_the_config(tmp_path: Path) -> None:
    config = small_config(tmp_path / "data.yaml", tmp_path, batch=-1, imgsz=500, allow=("size", "precision"))
    settings = Settings(batch=12, micro_batch=6, size=448, precision="amp-bf16", checkpointing="blocks")
    unknown: Any = None
    resolved = resolve(config, Plan(settings, settings, 0, unknown, unknown, ()))
    assert resolved == replace(config, batch=12, imgsz=448, precision="amp-bf16")


@pytest.mark.medium
def test_shared_train_and_val_images_are_reported(demo_data: Path, tmp_path: Path) -> None:
    same = tmp_path / "same.yaml"
    text = demo_data.read_text().replace("path: .", f"path: {demo_data.parent}")
    same.write_text(text.replace("images/val", "images/train"))
    with pytest.raises(Stopped, match="24 of 24 val images are also train images: the mAP is meaningless"):
        train(small_config(same, tmp_path / "run"), StopAtMessage("the mAP is"))


@pytest.mark.medium
@pytest.mark.parametrize(
    ("weights", "advice"), [(True, "pruned to 58 % of its operations it fits"), (False, "yolov5n fits")]
)
def test_where_nothing_fits_a_smaller_network_is_named(
    demo_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    weights: bool,  # noqa: FBT001
    advice: str,
) -> None:
    def plan(config: TrainConfig, *_: Any) -> Plan:
        """Accept any network with fewer than 5 million parameters."""
        if sum(parameter.numel() for parameter in config.build_network(4).parameters()) > 5e6:
            raise CannotFit("too large", "use a larger budget")
        unknown: Any = None
        settings = Settings(batch=8)
        return Plan(settings, settings, 0, unknown, unknown, ())

    monkeypatch.setattr(_train, "plan_training", plan)
    config = small_config(demo_data, tmp_path / "run", cfg="s", weights=tmp_path / "s.pt" if weights else None)
    with pytest.raises(CannotFit, match=rf"too large; {advice}.*; or use a larger budget"):
        train(config, RecordingProgress())


@pytest.mark.large
def test_a_budget_splits_the_batch_into_micro_batches(demo_data: Path, tmp_path: Path) -> None:
    progress = RecordingProgress()
    config = small_config(demo_data, tmp_path / "run", imgsz=128, epochs=1, budget_above_start=235 * MIB)
    result = train(config, progress)
    assert len(result.plan.settings.micro_batch_sizes) > 1
    assert result.plan.settings.batch == 8
    assert progress.rows[0]["micro_batches"] > 1


@pytest.mark.medium
@pytest.mark.usefixtures("quick_predictions")
def test_training_and_detecting_with_tiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_red_squares(tmp_path / "squares", train=2, val=1)
    progress = RecordingProgress()
    options: dict[str, Any] = {"cfg": "n", "imgsz": 64, "batch": 8, "epochs": 1, "device": "cpu", "workers": 1}
    train(TrainConfig(data, tmp_path / "run", tiles=256, **options), progress)
    assert progress.rows[0]["map50"] is not None
    assert not any("tiles" in message for message in progress.messages if not message.startswith("settings:"))
    assert (tmp_path / "run" / "val_predictions.png").exists()
    weights, images = tmp_path / "run" / "weights" / "last.pt", data.parent / "images" / "val"
    config = InferenceConfig(weights, 64, "cpu", tiles=256, nms=NmsConfig(0.001, 0.5))
    result = detect_objects(config, images, tmp_path / "tiles")
    assert len(result.images) == 1
    assert result.hint is None
    assert all(len(image.boxes) > 300 for image in result.images)  # the limit is per tile
    corners = np.array([box[:4] for box in result.images[0].boxes])
    assert corners.min() >= 0
    assert corners[:, 2].max() <= WIDTH
    assert corners[:, 3].max() <= HEIGHT
    flags = ["--weights", str(weights), "--img", "64", "--device", "cpu"]
    assert run(["detect", str(images), *flags, "--out", str(tmp_path / "whole")]) == 0
    assert "1 image is more than 4 times as large as 64 pixels: use --tiles 64" in capsys.readouterr().out
    assert run(["val", "--data", str(data), *flags, "--tiles", "256", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["images"], scores["boxes"]) == (1, SQUARES)
    assert scores["map50"] == pytest.approx(progress.rows[0]["map50"], abs=0.05)
