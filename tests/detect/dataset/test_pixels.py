from __future__ import annotations

import colorsys

import numpy as np
import pytest

from oomph.detect.dataset import gray_canvas, scale_into
from oomph.detect.dataset._pixels import adjust_hsv


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("seed", range(30))
def test_a_scaled_image_has_the_returned_position(seed: int) -> None:
    rng = np.random.default_rng(seed)
    width, height = (int(side) for side in rng.integers(40, 200, 2))
    slope = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)  # pixels contain their own coordinates
    image = np.ascontiguousarray(np.concatenate((slope, slope[..., :1] * 0), 2).astype(np.uint8))
    canvas = gray_canvas(100, 120)
    scale, shift = float(rng.uniform(0.55, 1.5)), tuple(float(value) for value in rng.uniform(-90, 60, 2))
    position = scale_into(canvas, image, (scale, scale), (shift[0], shift[1]))
    drawn = np.argwhere(canvas[..., 2] == 0)[:, ::-1]  # (x, y) of the drawn pixels
    for axis, side in enumerate((width, height)):
        edges = (np.array([0, side]) * scale + shift[axis]).clip(0, canvas.shape[1 - axis])
        moved = (edges - shift[axis]) / scale - (edges - position.shift[axis]) / position.scale[axis]
        assert np.abs(moved).max() < 1.01  # half a pixel at each end, and the edge of the canvas is rounded too
        if len(drawn):
            source = (drawn[:, axis] + 0.5 - position.shift[axis]) / position.scale[axis] - 0.5
            inner = (source > source.min() + 2) & (source < source.max() - 2)
            error = canvas[drawn[:, 1], drawn[:, 0], axis] - source
            is_narrow = np.ptp(source) < 33
            assert abs(error[inner].mean() if inner.any() else 0) < (0.6 if is_narrow else 0.25)


@pytest.mark.parametrize(
    "gains", [(1.0, 1.0, 1.0), (1.0, 0.5, 1.0), (1.0, 1.4, 0.7), (1.01, 1.2, 1.2), (1.4, 1.0, 1.0), (1.9, 1.0, 0.9)]
)
def test_adjust_hsv_multiplies_hue_saturation_and_value(gains: tuple[float, float, float], backend: str) -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(20, 236, (8, 8, 3), dtype=np.uint8)
    adjusted = adjust_hsv(image, *gains)
    errors = []
    for before, after in zip(image.reshape(-1, 3), adjusted.reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*(before / 255))
        hsv = (hue * gains[0] % 1, min(saturation * gains[1], 1), min(value * gains[2], 1))
        errors.append(np.abs(np.array(colorsys.hsv_to_rgb(*hsv)) * 255 - after).max())
    assert np.median(errors) < 6, backend
    assert np.quantile(errors, 0.95) < 16
