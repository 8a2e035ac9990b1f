from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oomph.detect import Hyperparameters, SavedConfig, TrainConfig, load_config
from oomph.detect.training._saved_config import CONFIG_FILE, config_document
from oomph.errors import InvalidFile, MissingFile

CONFIG = TrainConfig(data=Path("d"), run_dir=Path("f"))


def write_run(folder: Path, config: SavedConfig) -> Path:
    (folder / "weights").mkdir(parents=True)
    (folder / "weights" / "state.pt").touch()
    (folder / CONFIG_FILE).write_text(json.dumps(config_document(config)))
    return folder


def test_a_config_survives_a_round_trip_and_a_move_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    requested = TrainConfig(
        data=Path("ä b/data.yaml"),
        run_dir=Path("old"),
        weights=Path("w.pt"),
        batch=-1,
        allow=("size",),
        hyp=Hyperparameters(lr0=0.3, cos_lr=True, box=0.1),
    )
    resolved = replace(requested, batch=24, imgsz=448, precision="fp32")
    folder = write_run(tmp_path / "elsewhere", SavedConfig(requested, resolved))
    loaded = load_config(folder)
    absolute = {"data": tmp_path / "ä b/data.yaml", "weights": tmp_path / "w.pt", "run_dir": folder}
    assert loaded.requested == replace(requested, **absolute)  # type: ignore[arg-type]
    assert loaded.resolved == replace(resolved, **absolute)  # type: ignore[arg-type]


def test_the_previous_checkpoint_is_enough(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", SavedConfig(CONFIG, CONFIG))
    (folder / "weights" / "state.pt").rename(folder / "weights" / "state-previous.pt")
    assert load_config(folder).requested.run_dir == folder


def test_folders_without_checkpoint_or_valid_config_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match="there is no checkpoint in"):
        load_config(tmp_path)
    folder = write_run(tmp_path / "run", SavedConfig(CONFIG, CONFIG))
    (folder / CONFIG_FILE).write_text('{"oomph": "training-config", "version": 1, "requested": {}}')
    with pytest.raises(InvalidFile, match=r"config\.json can't be used: .*damaged"):
        load_config(folder)
    (folder / CONFIG_FILE).unlink()
    with pytest.raises(MissingFile, match=r"config\.json"):
        load_config(folder)
