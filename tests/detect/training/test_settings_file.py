from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from oomph.detect import Hyperparameters, TrainConfig, changed_settings, read_settings, settings_text
from oomph.errors import MissingFile, UsageError

CONFIG = TrainConfig(data=Path("data.yaml"), run_dir=Path("run"))


def read(folder: Path, text: str, config: TrainConfig = CONFIG) -> tuple[TrainConfig, tuple[str, ...]]:
    file = folder / "settings.yaml"
    file.write_text(text)
    return read_settings(file, config)


def test_settings_are_applied_to_the_config(tmp_path: Path) -> None:
    text = """
freeze: 10
patience: 7
checkpoint_minutes: 3
precision: amp-bf16
seed: 4
val_interval: 2
single_cls: true
max_broken_fraction: 0.2
optimizer: adamw
cos_lr: true
label_smoothing: 0.1
mosaic: 0.5
"""
    config, notes = read(tmp_path, text)
    expected = replace(
        CONFIG,
        freeze=10,
        patience=7,
        checkpoint_minutes=3.0,
        precision="amp-bf16",
        seed=4,
        val_interval=2,
        single_cls=True,
        max_broken_fraction=0.2,
        hyp=Hyperparameters(optimizer="AdamW", cos_lr=True, label_smoothing=0.1, mosaic=0.5),
    )
    assert config == expected
    assert notes == ()


@pytest.mark.parametrize(("line", "value"), [("tiles: 512", 512), ("tiles: true", True), ("tiles: false", False)])
def test_tiles_are_a_number_or_a_switch(tmp_path: Path, line: str, *, value: object) -> None:
    assert read(tmp_path, line)[0].tiles == value


def test_other_settings_keep_their_values(tmp_path: Path) -> None:
    base = replace(CONFIG, seed=9, hyp=Hyperparameters(lr0=0.5))
    config, _ = read(tmp_path, "lrf: 0.2", base)
    assert config == replace(base, hyp=Hyperparameters(lr0=0.5, lrf=0.2))


def test_names_of_a_hyp_file_without_effect_are_noted_once(tmp_path: Path) -> None:
    config, notes = read(tmp_path, "lr0: 0.02\nfl_gamma: 0.0\niou_t: 0.2\nlabel_smoothing: 0.0\n")
    assert config.hyp.lr0 == 0.02
    assert notes == (f"{tmp_path / 'settings.yaml'}: fl_gamma, iou_t have no effect",)


def test_written_settings_can_be_read_again(tmp_path: Path) -> None:
    config, _ = read(tmp_path, "freeze: 3\nprecision: fp32\nbox: 0.1\nmixup: 0.2\nseed: 2\nsingle_cls: true")
    assert read(tmp_path, settings_text(config)) == (config, ())
    assert read(tmp_path, settings_text(CONFIG), config) == (CONFIG, ())


def test_changed_settings_are_described(tmp_path: Path) -> None:
    assert changed_settings(CONFIG) == ()
    config, _ = read(tmp_path, "seed: 2\nmosaic: 0.5")
    assert changed_settings(config) == ("seed 2 (default 0)", "mosaic 0.5 (default 1.0)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("patienc: 5", "sets 'patienc', which is not a setting; remove it; did you mean 'patience'"),
        ("freeze: lots", "sets freeze to 'lots'; write an integer"),
        ("freeze: 1.5", "write an integer"),
        ("seed: true", "write an integer"),
        ("single_cls: 1", "write true or false"),
        ("checkpoint_minutes: soon", "write a number"),
        ("patience: -1", "patience is -1; use at least 0"),
        ("precision: fp8", "precision is 'fp8'; choose one of fp32, amp-bf16, amp-fp16"),
        ("precision: 16", "write a string"),
        ("label_smoothing: 2", "write a number from 0 to 1"),
        ("nominal_batch: 0", "at least 1"),
        ("batch: 8", "sets 'batch', which is a flag; remove it and pass --batch"),
        ("imgsz: 640", "pass --img"),
        ("batch_size: 8", "pass --batch"),
    ],
)
def test_invalid_settings_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_nested_value_is_truncated_in_the_message(tmp_path: Path) -> None:
    nested = ", ".join(f"key{number}: [1, 2, 3]" for number in range(100))
    with pytest.raises(UsageError) as caught:
        read(tmp_path, f"freeze: {{{nested}}}")
    assert "sets freeze to {'key0': [1, 2, 3]" in str(caught.value)
    assert len(str(caught.value)) < 200 + len(str(tmp_path))


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        read_settings(tmp_path / "missing.yaml", CONFIG)


def test_every_setting_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "train.md").read_text()
    for name in yaml.safe_load(settings_text(CONFIG)):
        assert f"`{name}`" in page, f"docs/train.md does not explain {name}"
