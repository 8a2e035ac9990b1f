from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.monitor._trend import find_growth
from oomph.units import MIB

SEEDS = st.integers(0, 2**32)


def noise(seed: int, kind: str) -> list[float]:
    source = random.Random(seed)  # noqa: S311  no secret
    length = source.randint(60, 600)
    scale = 10 ** source.uniform(0, 3) * MIB
    draws: dict[str, Callable[[], float]] = {
        "bell": lambda: source.gauss(0, scale),
        "even": lambda: source.uniform(-scale, scale),
        "spikes": lambda: scale * 100 if source.random() < 0.05 else source.gauss(0, scale / 10),
        "two levels": lambda: source.choice((0.0, scale)),
    }
    draw = draws[kind]
    return [4000 * MIB + draw() for _ in range(length)]


@given(SEEDS, st.sampled_from(["bell", "even", "spikes", "two levels"]))
@settings(max_examples=60, deadline=None)
def test_noise_that_stays_where_it_is_never_leaks(seed: int, kind: str) -> None:
    assert find_growth(noise(seed, kind), 64 * MIB) is None


@given(SEEDS, st.sampled_from(["bell", "even", "spikes"]), st.floats(1, 20))
@settings(max_examples=60, deadline=None)
def test_growth_well_above_noise_and_level_is_found_with_its_slope(seed: int, kind: str, much: float) -> None:
    flat = noise(seed, kind)
    spread = sorted(abs(value - 4000 * MIB) for value in flat)[len(flat) * 3 // 4]
    total = much * (20 * spread + 1000 * MIB)
    slope = total / len(flat)
    found = find_growth([value + slope * at for at, value in enumerate(flat)], 64 * MIB)
    assert found is not None
    assert found.slope == pytest.approx(slope, rel=0.2)


@given(st.integers(60, 500), st.floats(0.02, 0.25))
@settings(max_examples=40, deadline=None)
def test_growth_that_levels_off_is_a_warm_up(length: int, share: float) -> None:
    values = [1000 * MIB * (1 - math.exp(-at / (share * length))) for at in range(length)]
    assert find_growth(values, MIB) is None


def test_the_densest_batch_so_far_is_no_leak() -> None:
    source = random.Random(7)  # noqa: S311
    values, most = [], 0.0
    for _ in range(400):
        most = max(most, source.gauss(4000, 400))
        values.append(most * MIB)
    assert find_growth(values, 64 * MIB) is None


def test_a_saw_that_falls_back_each_epoch_is_no_leak_and_one_that_climbs_is() -> None:
    saw = [1000 * MIB + (at % 50) * 20 * MIB for at in range(600)]
    assert find_growth(saw, 64 * MIB) is None
    climbing = [value + at * 4 * MIB for at, value in enumerate(saw)]
    assert find_growth(climbing, 64 * MIB) is not None


def test_little_data_and_little_growth_are_no_leak() -> None:
    assert find_growth([float(at) * MIB for at in range(50)], 0) is None
    assert find_growth([1000 * MIB + at * 1000.0 for at in range(500)], 64 * MIB) is None
    assert find_growth([], 0) is None
