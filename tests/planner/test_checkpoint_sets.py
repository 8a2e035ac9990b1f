from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.planner._checkpoint_sets import checkpoint_sets
from oomph.planner._step_profile import Recomputable, StepProfile, is_under
from oomph.settings import Settings

from .networks import H200, SETTINGS, predictor


def tree_profile(sizes: list[int], seconds: list[float]) -> StepProfile:
    """Return a profile of four blocks with two layers each, every layer with an activation."""
    modules: dict[str, Recomputable] = {}
    activations = []
    for index, (size, launching) in enumerate(zip(sizes, seconds, strict=True)):
        path = f"{index // 2}.{index % 2}"
        activations.append((path, size))
        modules[path] = Recomputable(path, (index,), 0, size, launching)
    for block in range(len(sizes) // 2):
        inner = (2 * block, 2 * block + 1)
        size, launching = sum(sizes[index] for index in inner), sum(seconds[index] for index in inner)
        modules[str(block)] = Recomputable(str(block), inner, 0, size, launching)
    total = sum(seconds)
    return StepProfile(Settings(batch=8), H200, tuple(activations), 0, 0, 0, {}, 0, modules, (), total, 0.0)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 10**6), min_size=8, max_size=8),
    st.lists(st.floats(1e-6, 1e-2), min_size=8, max_size=8),
)
def test_sets_never_nest_and_reach_from_nothing_to_everything(sizes: list[int], seconds: list[float]) -> None:
    profile = tree_profile(sizes, seconds)
    sets = checkpoint_sets(profile, 8)
    assert sets[0] == ()
    for paths in sets:
        assert not any(is_under(path, other) for path in paths for other in paths if path != other)
    layers = {path for path in profile.modules if "." in path}
    assert layers == {layer for paths in sets for path in paths for layer in layers if is_under(layer, path)}


def test_the_cheapest_byte_comes_first() -> None:
    profile = tree_profile([100, 1, 1, 1, 1, 1, 1, 1], [1e-4] * 8)
    smallest = min(checkpoint_sets(profile, 8)[1:], key=len)
    assert smallest in {("0.0",), ("0",)}


def test_real_network_has_a_front() -> None:
    profile = predictor().profile(SETTINGS)
    points = sorted((profile.memory(64, paths), profile.seconds(64, paths)) for paths in checkpoint_sets(profile, 64))
    assert points[0][0] < 0.9 * points[-1][0]
    assert points[-1][1] == min(seconds for _, seconds in points)
