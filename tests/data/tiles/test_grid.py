from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomph.data import Tiles
from oomph.errors import UsageError


@pytest.mark.medium
@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 1200), st.floats(0, 0.95))
def test_grid_covers_every_pixel_with_windows_of_one_size(width: int, height: int, side: int, overlap: float) -> None:
    tiles = Tiles(side, overlap)
    if width * height / (side * (1 - overlap) + 1) ** 2 > 2000:
        return
    windows = tiles.grid(width, height)
    assert {window.size for window in windows} == {(min(side, width), min(side, height))}
    for axis, length in enumerate((width, height)):
        edges = sorted({(window[axis], window[axis + 2]) for window in windows})
        assert edges[0][0] == 0
        assert edges[-1][1] == length
        shared = [before[1] - after[0] for before, after in pairwise(edges)]
        assert all(pixels >= int(min(side, length) * overlap) - 1 for pixels in shared)


def test_impossible_tiles_are_rejected() -> None:
    with pytest.raises(UsageError, match="overlap=1 are impossible"):
        Tiles(640, 1)


def test_tiles_are_worthwhile_for_large_images_with_small_objects() -> None:
    assert Tiles(1024).is_worthwhile(20000, 20000, 640, 30)
    assert not Tiles(1024).is_worthwhile(20000, 20000, 640, 5000)
    assert not Tiles(1024).is_worthwhile(800, 600, 640, 5)
