from __future__ import annotations

import numpy as np
import pytest

from oomph.data import Letterbox, Window, fit_size, paste_letterbox


@pytest.mark.parametrize("size", [(1, 1000), (1000, 1), (3, 2), (641, 480)])
def test_fitted_size_touches_its_bounds(size: tuple[int, int]) -> None:
    width, height = fit_size(size, (640, 320))
    assert 1 <= width <= 640
    assert 1 <= height <= 320
    assert width == 640 or height == 320


def test_letterbox_converts_boxes_both_ways() -> None:
    canvas = np.zeros((64, 100, 3), np.uint8)
    letterbox = paste_letterbox(np.full((40, 80, 3), 7, np.uint8), Window(10, 20, 170, 100), canvas)
    assert letterbox == Letterbox(Window(10, 20, 170, 100), (80, 40), 10, 12)
    assert canvas[12:52, 10:90].min() == canvas[12:52, 10:90].max() == 7
    assert (canvas == 7).sum() == 40 * 80 * 3
    assert set(np.unique(canvas).tolist()) == {7, 114}
    boxes = np.array([[10.0, 20.0, 170.0, 100.0], [50.0, 40.0, 60.0, 45.0]])
    assert letterbox.to_canvas(boxes)[0].tolist() == [10, 12, 90, 52]
    assert np.allclose(letterbox.to_image(letterbox.to_canvas(boxes)), boxes)
