from __future__ import annotations

from pathlib import Path

import pytest
import torch

from oomph.detect import Recipe, build_optimizer, freeze, parameter_groups, read_recipe, recipe_from, yolov5
from oomph.errors import MissingFile, UsageError
from oomph.recovery._wholeness import asks_first, room_for

HYP = """\
# a hyp file as YOLOv5 users have them
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


def test_a_hyp_file_is_read_in_full(tmp_path: Path) -> None:
    file = tmp_path / "hyp.yaml"
    file.write_text(HYP)
    recipe = read_recipe(file)
    assert (recipe.rate, recipe.final_rate, recipe.decay, recipe.anchor_ratio) == (0.02, 0.1, 5e-4, 3.5)
    assert (recipe.gains.box, recipe.gains.objectness, recipe.gains.classes) == (0.04, 0.9, 0.4)
    changed = recipe.augmentation
    assert (changed.hue, changed.flip_vertical, changed.mixup, changed.perspective) == (0.01, 0.1, 0.1, 0.0001)
    assert not changed.upright


def test_our_own_names_work_too_nested_or_not() -> None:
    recipe = recipe_from({"rate": 0.5, "nominal_batch": 16, "optimizer": "adamw", "augmentation": {"mosaic": 0.0}})
    assert (recipe.rate, recipe.nominal_batch, recipe.optimizer) == (0.5, 16, "AdamW")
    assert recipe.augmentation.mosaic == 0.0
    assert recipe_from({"gains.box": 1}).gains.box == 1.0
    assert recipe_from({}) == Recipe()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"lr": 0.1}, "sets 'lr', which nothing here is called; take it out; did you mean 'lr"),
        ({"lr0": "fast"}, "sets lr0 to 'fast'; it must be a number"),
        ({"lr0": -1}, "at least 0"),
        ({"mosaic": True}, "at least 0"),
        ({"fl_gamma": 1.5}, "sets fl_gamma to 1.5: there is no focal loss here; set it to 0"),
        ({"copy_paste": 0.1}, "no outlines"),
        ({"optimizer": "Lion"}, "one of SGD, AdamW"),
        ({"zzz": 1}, "see docs/train.md"),
        ({"mosaic": 1.5}, "between 0 and 1"),
        ({"least_warmup": 0.5}, "a whole number of at least 0"),
    ],
)
def test_what_nobody_knows_is_refused_by_name(values: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        recipe_from(values)
    assert words in str(caught.value)


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        read_recipe(tmp_path / "none.yaml")


def test_only_convolution_weights_decay_and_all_parameters_are_in_one_group() -> None:
    model = yolov5("n", classes=2)
    groups = {group["name"]: group for group in parameter_groups(model, Recipe(), batch=16)}
    listed = [parameter for group in groups.values() for parameter in group["params"]]
    assert len(listed) == len({id(one) for one in listed}) == len(list(model.parameters()))
    assert {parameter.dim() for parameter in groups["weights"]["params"]} == {4}
    assert {parameter.dim() for parameter in groups["norms"]["params"]} == {1}
    assert len(groups["biases"]["params"]) == len(groups["norms"]["params"]) + 3
    assert (groups["biases"]["weight_decay"], groups["norms"]["weight_decay"]) == (0.0, 0.0)


@pytest.mark.parametrize(("batch", "decay"), [(16, 5e-4), (64, 5e-4), (128, 1e-3), (24, 5e-4 * 72 / 64)])
def test_decay_follows_the_batch(batch: int, decay: float) -> None:
    with torch.device("meta"):
        model = yolov5("n", classes=2)
    assert parameter_groups(model, Recipe(), batch)[0]["weight_decay"] == pytest.approx(decay)


def test_frozen_layers_stay_and_the_others_learn() -> None:
    model = yolov5("n", classes=2)
    held = freeze(model, 10)
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert {int(name.split(".")[1]) for name in frozen} == set(range(10))
    assert held == sum(p.numel() for p in model.parameters() if not p.requires_grad) > 0
    assert freeze(yolov5("n", classes=2), 0) == 0


def test_the_optimizer_is_the_recipes() -> None:
    with torch.device("meta"):
        model = yolov5("n", classes=2)
    sgd = build_optimizer(model, Recipe(), 16)
    assert isinstance(sgd, torch.optim.SGD)
    assert sgd.param_groups[0]["nesterov"]
    assert asks_first(sgd)  # so that the guard needs no copy of weights and state beside a GPU
    adam = build_optimizer(model, Recipe(optimizer="AdamW"), 16)
    assert adam.param_groups[1]["betas"] == (0.937, 0.999)
    assert room_for(adam) is not None  # nor of Adam's
