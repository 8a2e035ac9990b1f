from __future__ import annotations

import numpy as np
import pytest
import torch

from oomph.data import Letterbox, Window
from oomph.detect import score
from oomph.detect.inference._results import letterbox_result


def test_results_are_in_pixels_of_the_original() -> None:
    rng = np.random.default_rng(0)
    results = []
    for index in range(4):
        width, height = 300 + 7 * index, 200 - 9 * index
        labels = np.array([[index, *rng.uniform(0.3, 0.6, 2), *rng.uniform(0.1, 0.3, 2)]], np.float32)
        scaled_height = round(128 * height / width)
        letterbox = Letterbox(Window(0, 0, width, height), (128, scaled_height), 16, (128 - scaled_height) // 2)
        # The prediction of a perfect network, in pixels of the canvas.
        _, x, y, w, h = labels[0] * np.array([1, width, height, width, height])
        corners = letterbox.to_canvas(np.array([[x - w / 2, y - h / 2, x + w / 2, y + h / 2]]))
        results.append(letterbox_result(torch.tensor([[*corners[0], 1.0, index]]), letterbox, labels))
        assert np.abs(results[-1].predictions[:, :4] - results[-1].truth[:, 1:]).max() < 1e-3
    assert score(results, ["a", "b", "c", "d"]).map50 == pytest.approx(1.0)


def test_boxes_are_clipped_to_the_image() -> None:
    letterbox = Letterbox(Window(0, 0, 100, 50), (64, 32), 0, 16)
    predictions = torch.tensor([[-5.0, 0.0, 70.0, 64.0, 1.0, 0.0]])
    result = letterbox_result(predictions, letterbox, np.zeros((0, 5), np.float32))
    assert result.predictions[0, :4].tolist() == [0, 0, 100, 50]
