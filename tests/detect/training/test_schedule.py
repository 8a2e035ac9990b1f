from __future__ import annotations

import pytest
import torch

from oomph.detect import Recipe, Schedule, accumulation, build_optimizer, set_rates, should_stop, yolov5


@pytest.mark.parametrize(("batch", "expected"), [(64, 1), (16, 4), (8, 8), (24, 3), (48, 1), (128, 1), (1, 64)])
def test_batches_accumulate_to_the_nominal_one(batch: int, expected: int) -> None:
    assert accumulation(batch, 64) == expected


def test_rates_begin_apart_meet_and_fall_in_a_line() -> None:
    course = Schedule(Recipe(), batch=16, per_epoch=50, epochs=100)
    assert course.warmup == 150
    first = course.at(0)
    assert (first.rate, first.bias_rate, first.momentum, first.accumulate) == (0.0, 0.1, 0.8, 1)
    middle = course.at(75)
    expected = 0.01 * course.fall(1)
    assert middle.rate == pytest.approx(expected / 2)
    assert middle.bias_rate == pytest.approx((0.1 + expected) / 2)
    assert middle.momentum == pytest.approx((0.8 + 0.937) / 2)
    assert middle.accumulate == round((1 + 4) / 2)
    later = course.at(50 * 40)
    assert later.rate == later.bias_rate == pytest.approx(0.01 * (0.6 * 0.99 + 0.01))
    assert (later.momentum, later.accumulate) == (0.937, 4)
    assert course.at(4999).rate == pytest.approx(0.01 * (0.01 * 0.99 + 0.01))


def test_rates_can_fall_along_half_a_cosine() -> None:
    course = Schedule(Recipe(cosine=True, final_rate=0.1), batch=64, per_epoch=1, epochs=100)
    assert course.fall(0) == 1.0
    assert course.fall(50) == pytest.approx(0.55)
    assert course.fall(25) == pytest.approx(0.1 + 0.9 * (1 + 0.5**0.5) / 2)
    assert course.fall(100) == pytest.approx(0.1)


def test_the_warm_up_lasts_at_least_100_iterations_unless_there_is_none() -> None:
    assert Schedule(Recipe(), 16, per_epoch=4, epochs=10).warmup == 100
    none = Schedule(Recipe(warmup_epochs=0), 16, per_epoch=4, epochs=10)
    assert none.warmup == 0
    assert none.at(0).rate == 0.01


def test_every_iteration_is_in_exactly_one_step_and_the_last_one_is_stepped() -> None:
    course = Schedule(Recipe(), batch=16, per_epoch=33, epochs=7)
    steps = [iteration for iteration in range(course.iterations) if course.at(iteration).steps]
    assert steps[-1] == course.iterations - 1
    assert course.optimizer_steps == len(steps)
    sizes = [after - before for before, after in zip([-1, *steps], steps, strict=False)]
    assert sum(sizes) == course.iterations
    assert [course.at(iteration).group for iteration in steps] == sizes
    assert course.at(steps[-2] + 1).group == sizes[-1]
    assert sizes[0] == 1
    assert set(sizes[60:-1]) == {4}


def test_a_moment_knows_the_images_of_its_step_where_the_last_batch_of_an_epoch_is_short() -> None:
    course = Schedule(Recipe(), batch=16, per_epoch=33, epochs=7)
    seen, since = 0, 0
    for iteration in range(course.iterations):
        seen += 5 if iteration % 33 == 32 else 16
        if course.at(iteration).steps:
            wanted = {course.at(one).images(16, 5) for one in range(since, iteration + 1)}
            assert wanted == {seen}
            seen, since = 0, iteration + 1


def test_a_moment_depends_on_the_iteration_alone() -> None:
    one, other = (Schedule(Recipe(), 8, 20, 10) for _ in range(2))
    forward = [one.at(iteration) for iteration in range(200)]
    backward = [other.at(iteration) for iteration in reversed(range(200))]
    assert forward == backward[::-1]


def test_patience_ends_after_epochs_without_a_better_one() -> None:
    assert not should_stop([], 3)
    assert not should_stop([0.1, 0.5, 0.4, 0.3], 3)
    assert should_stop([0.1, 0.5, 0.4, 0.3, 0.2], 3)
    assert not should_stop([0.1, 0.5, 0.4, 0.3, 0.5], 3)
    assert not should_stop([0.5, 0.4, 0.3, 0.2], 0)


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_an_optimizer_takes_the_rates_of_the_moment(name: str) -> None:
    with torch.device("meta"):
        model = yolov5("n", classes=2)
    recipe = Recipe(optimizer=name)
    optimizer = build_optimizer(model, recipe, 16)
    set_rates(optimizer, Schedule(recipe, 16, 10, 10).at(50))
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    assert rates["biases"] > rates["weights"] == rates["norms"] > 0
    group = optimizer.param_groups[0]
    assert (group["betas"][0] if name == "AdamW" else group["momentum"]) == pytest.approx(0.8685)
