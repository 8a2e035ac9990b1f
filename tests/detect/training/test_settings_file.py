from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from oomph.detect import Augmentation, OrderForm, Recipe, changed_settings, read_settings, settings_text
from oomph.errors import MissingFile, UsageError

FORM = OrderForm(data=Path("data.yaml"), folder=Path("run"))


def read(folder: Path, text: str, form: OrderForm = FORM) -> tuple[OrderForm, tuple[str, ...]]:
    file = folder / "settings.yaml"
    file.write_text(text)
    return read_settings(file, form)


def test_a_file_says_what_has_no_flag(tmp_path: Path) -> None:
    text = """
freeze: 10
patience: 7
minutes: 3
precision: amp-bf16
seed: 4
every: 2
single_cls: true
tolerated: 0.2
optimizer: adamw
cos_lr: true
label_smoothing: 0.1
augmentation: {mosaic: 0.5}
"""
    form, words = read(tmp_path, text)
    assert (form.freeze, form.patience, form.minutes, form.precision) == (10, 7, 3.0, "amp-bf16")
    assert (form.seed, form.every, form.single_class, form.tolerated) == (4, 2, True, 0.2)
    assert form.recipe == Recipe(
        optimizer="AdamW", cosine=True, label_smoothing=0.1, augmentation=Augmentation(mosaic=0.5)
    )
    assert words == ()


def test_what_it_does_not_say_stays_as_the_form_has_it(tmp_path: Path) -> None:
    base = replace(FORM, seed=9, recipe=Recipe(rate=0.5))
    form, _ = read(tmp_path, "lrf: 0.2", base)
    assert form == replace(base, recipe=Recipe(rate=0.5, final_rate=0.2))


def test_a_hyp_file_of_yolov5_is_taken_and_what_is_idle_is_told_once(tmp_path: Path) -> None:
    form, words = read(tmp_path, "lr0: 0.02\nfl_gamma: 0.0\niou_t: 0.2\nlabel_smoothing: 0.0\n")
    assert form.recipe.rate == 0.02
    assert words == (f"{tmp_path / 'settings.yaml'}: fl_gamma, iou_t change nothing here",)


def test_what_is_saved_can_be_read_again(tmp_path: Path) -> None:
    form, _ = read(tmp_path, "freeze: 3\nprecision: fp32\nbox: 0.1\nmixup: 0.2\nseed: 2\nsingle_class: true")
    assert read(tmp_path, settings_text(form)) == (form, ())
    assert read(tmp_path, settings_text(FORM), form) == (FORM, ())


def test_what_differs_from_the_defaults_is_told(tmp_path: Path) -> None:
    assert changed_settings(FORM) == ()
    form, _ = read(tmp_path, "seed: 2\nmosaic: 0.5")
    assert changed_settings(form) == ("seed 2 (not 0)", "augmentation.mosaic 0.5 (not 1.0)")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("patienc: 5", "sets 'patienc', which nothing here is called; take it out; did you mean 'patience'"),
        ("freeze: lots", "sets freeze to 'lots'; it must be a whole number"),
        ("freeze: 1.5", "it must be a whole number"),
        ("seed: true", "it must be a whole number"),
        ("single_class: 1", "it must be true or false"),
        ("cosine: 1", "it must be true or false"),
        ("minutes: soon", "it must be a number"),
        ("patience: -1", "patience is -1; it must be at least 0"),
        ("every: 0", "every is 0; it must be at least 1"),
        ("precision: fp8", "precision is 'fp8'; it must be one of fp32, amp-bf16, amp-fp16"),
        ("precision: 16", "it must be a text"),
        ("label_smoothing: 2", "it must be between 0 and 1"),
        ("nominal_batch: 0", "at least 1"),
        ("batch: 8", "sets 'batch', which has a flag; take it out and write --batch"),
        ("imgsz: 640", "write --img"),
    ],
)
def test_what_can_not_be_taken_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert words in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        read_settings(tmp_path / "none.yaml", FORM)


def test_every_name_stands_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text()
    for name, value in yaml.safe_load(settings_text(FORM)).items():
        for one in (name, *(value if isinstance(value, dict) else ())):
            assert f"`{one}`" in page, f"docs/train.md does not explain {one}"
