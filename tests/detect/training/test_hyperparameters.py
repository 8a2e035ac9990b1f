from __future__ import annotations

from pathlib import Path

import pytest

from oomph.detect import Augmentation, Hyperparameters, LossGains, parse_hyperparameters, read_hyperparameters
from oomph.errors import MissingFile, UsageError

HYP = """\
# a YOLOv5 hyp file
lr0: 0.02
lrf: 0.1
momentum: 0.9
weight_decay: 5e-4
warmup_epochs: 2.0
warmup_momentum: 0.7
warmup_bias_lr: 0.2
box: 0.04
cls: 0.4
cls_pw: 1.0
obj: 0.9
obj_pw: 1.0
iou_t: 0.20
anchor_t: 3.5
fl_gamma: 0.0
hsv_h: 0.01
hsv_s: 0.6
hsv_v: 0.3
degrees: 5.0
translate: 0.2
scale: 0.9
shear: 1.0
perspective: 0.0001
flipud: 0.1
fliplr: 0.4
mosaic: 0.8
mixup: 0.1
copy_paste: 0.0
"""


def test_a_yolov5_hyp_file_is_read_completely(tmp_path: Path) -> None:
    (tmp_path / "hyp.yaml").write_text(HYP)
    hyp = read_hyperparameters(tmp_path / "hyp.yaml")
    assert (hyp.lr0, hyp.lrf, hyp.weight_decay, hyp.warmup_bias_lr, hyp.anchor_t) == (0.02, 0.1, 5e-4, 0.2, 3.5)
    assert hyp.gains == LossGains(box=0.04, obj=0.9, cls=0.4)
    assert hyp.augmentation == Augmentation(
        mosaic=0.8,
        mixup=0.1,
        hsv_h=0.01,
        hsv_s=0.6,
        hsv_v=0.3,
        degrees=5.0,
        shear=1.0,
        translate=0.2,
        scale=0.9,
        perspective=0.0001,
        flipud=0.1,
        fliplr=0.4,
    )
    assert not hyp.augmentation.is_axis_aligned


def test_names_that_are_not_given_keep_their_values() -> None:
    hyp = parse_hyperparameters({"nominal_batch": 16, "optimizer": "adamw"}, base=Hyperparameters(lr0=0.5))
    assert (hyp.lr0, hyp.nominal_batch, hyp.optimizer) == (0.5, 16, "AdamW")
    assert parse_hyperparameters({}) == Hyperparameters()


def test_defaults_are_those_of_the_parts() -> None:
    assert Hyperparameters().gains == LossGains()
    assert Hyperparameters().augmentation == Augmentation()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": 0.1}, "sets 'lr', which is not a setting; remove it; did you mean 'lr"),
        ({"zzz": 1}, "docs/train.md lists the names"),
        ({"lr0": "fast"}, "sets lr0 to 'fast'; write a number"),
        ({"lr0": -1}, "at least 0"),
        ({"mosaic": True}, "at least 0"),
        ({"mosaic": 1.5}, "from 0 to 1"),
        ({"min_warmup_iterations": 0.5}, "an integer of at least 0"),
        ({"cos_lr": 1}, "true or false"),
        ({"optimizer": "Lion"}, "choose SGD or AdamW"),
        ({"fl_gamma": 1.5}, "sets fl_gamma to 1.5: focal loss is not supported; set it to 0 or remove it"),
        ({"copy_paste": 0.1}, "needs segments"),
    ],
)
def test_invalid_names_and_values_are_rejected(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hyperparameters(values)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["lr0", "optimizer", "cos_lr", "fl_gamma"])
def test_a_nested_value_is_truncated_in_the_message(name: str) -> None:
    nested = {f"key{number}": list(range(100)) for number in range(100)}
    with pytest.raises(UsageError) as caught:
        parse_hyperparameters({name: nested})
    assert len(str(caught.value)) < 200


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        read_hyperparameters(tmp_path / "missing.yaml")
