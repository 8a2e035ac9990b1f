from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oomph.detect import Hyperparameters, Schedule, accumulation, build_optimizer, set_lr, should_stop, yolov5


@pytest.mark.parametrize(("batch", "expected"), [(64, 1), (16, 4), (8, 8), (24, 3), (48, 1), (128, 1), (1, 64)])
def test_batches_accumulate_to_the_nominal_batch(batch: int, expected: int) -> None:
    assert accumulation(batch, 64) == expected


def test_learning_rates_warm_up_and_decay_linearly() -> None:
    schedule = Schedule(Hyperparameters(), batch=16, iterations_per_epoch=50, epochs=100)
    assert schedule.warmup_iterations == 150
    first = schedule.at(0)
    assert (first.lr, first.bias_lr, first.momentum, first.accumulate) == (0.0, 0.1, 0.8, 1)
    middle = schedule.at(75)
    expected = 0.01 * schedule.lr_factor(1)
    assert middle.lr == pytest.approx(expected / 2)
    assert middle.bias_lr == pytest.approx((0.1 + expected) / 2)
    assert middle.momentum == pytest.approx((0.8 + 0.937) / 2)
    assert middle.accumulate == round((1 + 4) / 2)
    later = schedule.at(50 * 40)
    assert later.lr == later.bias_lr == pytest.approx(0.01 * (0.6 * 0.99 + 0.01))
    assert (later.momentum, later.accumulate) == (0.937, 4)
    assert schedule.at(4999).lr == pytest.approx(0.01 * (0.01 * 0.99 + 0.01))


def test_learning_rates_can_follow_a_cosine() -> None:
    schedule = Schedule(Hyperparameters(cos_lr=True, lrf=0.1), batch=64, iterations_per_epoch=1, epochs=100)
    assert schedule.lr_factor(0) == 1.0
    assert schedule.lr_factor(50) == pytest.approx(0.55)
    assert schedule.lr_factor(25) == pytest.approx(0.1 + 0.9 * (1 + 0.5**0.5) / 2)
    assert schedule.lr_factor(100) == pytest.approx(0.1)


def test_the_warm_up_has_a_minimum_length_unless_it_is_disabled() -> None:
    assert Schedule(Hyperparameters(), 16, iterations_per_epoch=4, epochs=10).warmup_iterations == 100
    disabled = Schedule(Hyperparameters(warmup_epochs=0), 16, iterations_per_epoch=4, epochs=10)
    assert disabled.warmup_iterations == 0
    assert disabled.at(0).lr == 0.01


def test_every_iteration_belongs_to_exactly_one_update() -> None:
    schedule = Schedule(Hyperparameters(), batch=16, iterations_per_epoch=33, epochs=7)
    updates = [iteration for iteration in range(schedule.iterations) if schedule.at(iteration).updates]
    assert updates[-1] == schedule.iterations - 1
    assert schedule.update_count == len(updates)
    sizes = [after - before for before, after in zip([-1, *updates], updates, strict=False)]
    assert sum(sizes) == schedule.iterations
    assert [schedule.at(iteration).group for iteration in updates] == sizes
    assert schedule.at(updates[-2] + 1).group == sizes[-1]
    assert sizes[0] == 1
    assert set(sizes[60:-1]) == {4}


def test_images_of_an_update_with_short_last_batches() -> None:
    schedule = Schedule(Hyperparameters(), batch=16, iterations_per_epoch=33, epochs=7)
    images, first = 0, 0
    for iteration in range(schedule.iterations):
        images += 5 if iteration % 33 == 32 else 16
        if schedule.at(iteration).updates:
            counts = {schedule.at(number).update_images(16, 5) for number in range(first, iteration + 1)}
            assert counts == {images}
            images, first = 0, iteration + 1


def test_a_step_depends_on_the_iteration_alone() -> None:
    first, second = (Schedule(Hyperparameters(), 8, 20, 10) for _ in range(2))
    forward = [first.at(iteration) for iteration in range(200)]
    backward = [second.at(iteration) for iteration in reversed(range(200))]
    assert forward == backward[::-1]


def test_training_stops_after_epochs_without_improvement() -> None:
    assert not should_stop([], 3)
    assert not should_stop([0.1, 0.5, 0.4, 0.3], 3)
    assert should_stop([0.1, 0.5, 0.4, 0.3, 0.2], 3)
    assert not should_stop([0.1, 0.5, 0.4, 0.3, 0.5], 3)
    assert not should_stop([0.5, 0.4, 0.3, 0.2], 0)


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_set_lr_sets_the_rates_of_an_optimizer(name: str) -> None:
    with torch.device("meta"):
        model = yolov5("n", classes=2)
    hyp = Hyperparameters(optimizer=name)
    optimizer = build_optimizer(model, hyp, 16)
    set_lr(optimizer, Schedule(hyp, 16, 10, 10).at(50))
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    assert rates["biases"] > rates["weights"] == rates["norms"] > 0
    group = optimizer.param_groups[0]
    assert (group["betas"][0] if name == "AdamW" else group["momentum"]) == pytest.approx(0.8685)


@given(images=st.integers(1, 700), epochs=st.integers(1, 5), warmup=st.sampled_from([0.0, 1.0, 3.0]))
def test_batches_that_divide_the_nominal_one_can_make_the_same_updates(images: int, epochs: int, warmup: float) -> None:
    hyp = Hyperparameters(same_updates=True, warmup_epochs=warmup, min_warmup_iterations=5)

    def update_sizes(batch: int) -> list[int]:
        schedule = Schedule(hyp, batch, math.ceil(images / batch), epochs)
        steps = [schedule.at(iteration) for iteration in range(schedule.iterations)]
        last = images % batch or batch
        return [step.update_images(batch, last) for step in steps if step.updates]

    whole = update_sizes(64)
    assert sum(whole) == images * epochs
    assert all(update_sizes(batch) == whole for batch in (1, 8, 16, 32))


def test_the_warm_up_of_same_updates_is_counted_in_updates() -> None:
    hyp = Hyperparameters(same_updates=True)
    lengths = {batch: Schedule(hyp, batch, 192 // batch, 200).warmup_iterations * batch for batch in (16, 32, 64)}
    assert lengths == dict.fromkeys((16, 32, 64), 100 * 64)
