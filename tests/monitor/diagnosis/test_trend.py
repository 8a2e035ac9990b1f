from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.monitor.diagnosis._trend import find_growth
from oomph.units import MIB

SEEDS = st.integers(0, 2**32)


def noise(seed: int, kind: str) -> list[float]:
    source = random.Random(seed)  # noqa: S311  no secret
    length = source.randint(60, 600)
    scale = 10 ** source.uniform(0, 3) * MIB
    draws: dict[str, Callable[[], float]] = {
        "normal": lambda: source.gauss(0, scale),
        "uniform": lambda: source.uniform(-scale, scale),
        "spikes": lambda: scale * 100 if source.random() < 0.05 else source.gauss(0, scale / 10),
        "two levels": lambda: source.choice((0.0, scale)),
    }
    draw = draws[kind]
    return [4000 * MIB + draw() for _ in range(length)]


@given(SEEDS, st.sampled_from(["normal", "uniform", "spikes", "two levels"]))
@settings(max_examples=60, deadline=None)
def test_noise_is_not_a_leak(seed: int, kind: str) -> None:
    assert find_growth(noise(seed, kind), 64 * MIB) is None


@given(SEEDS, st.sampled_from(["normal", "uniform", "spikes"]), st.floats(1, 20))
@settings(max_examples=60, deadline=None)
def test_growth_above_the_noise_is_found_with_its_slope(seed: int, kind: str, factor: float) -> None:
    flat = noise(seed, kind)
    spread = sorted(abs(value - 4000 * MIB) for value in flat)[len(flat) * 3 // 4]
    total = factor * (20 * spread + 1000 * MIB)
    slope = total / len(flat)
    growth = find_growth([value + slope * index for index, value in enumerate(flat)], 64 * MIB)
    assert growth is not None
    assert growth.slope == pytest.approx(slope, rel=0.2)


@given(st.integers(60, 500), st.floats(0.02, 0.25))
@settings(max_examples=40, deadline=None)
def test_growth_that_levels_off_is_not_a_leak(length: int, fraction: float) -> None:
    values = [1000 * MIB * (1 - math.exp(-index / (fraction * length))) for index in range(length)]
    assert find_growth(values, MIB) is None


def test_running_maximum_is_not_a_leak() -> None:
    source = random.Random(7)  # noqa: S311
    values, largest = [], 0.0
    for _ in range(400):
        largest = max(largest, source.gauss(4000, 400))
        values.append(largest * MIB)
    assert find_growth(values, 64 * MIB) is None


def test_sawtooth_is_a_leak_only_if_it_climbs() -> None:
    sawtooth = [1000 * MIB + (index % 50) * 20 * MIB for index in range(600)]
    assert find_growth(sawtooth, 64 * MIB) is None
    climbing = [value + index * 4 * MIB for index, value in enumerate(sawtooth)]
    assert find_growth(climbing, 64 * MIB) is not None


def test_little_data_and_little_growth_are_not_a_leak() -> None:
    assert find_growth([float(index) * MIB for index in range(50)], 0) is None
    assert find_growth([1000 * MIB + index * 1000.0 for index in range(500)], 64 * MIB) is None
    assert find_growth([], 0) is None
