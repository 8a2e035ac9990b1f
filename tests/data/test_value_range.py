from __future__ import annotations

import numpy as np
import pytest

from oomph.data import to_value_range


@pytest.mark.parametrize(
    ("value_range", "expected"), [((0, 255), [0, 51, 255]), ((0, 1), [0, 0.2, 1]), ((-1, 1), [-1, -0.6, 1])]
)
def test_black_and_white_are_the_ends_of_the_range(value_range: tuple[float, float], expected: list[float]) -> None:
    floats = to_value_range(np.array([0, 51, 255], np.uint8), value_range)
    assert floats.dtype == np.float32
    assert np.allclose(floats, expected, atol=1e-6)
