from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oomph.data import Letterbox, Window
from oomph.detect import ImageResult, read_results, score, write_results
from oomph.detect.metrics._image_result import image_result
from oomph.errors import MissingFile, UsageError


def test_results_are_in_pixels_of_the_original() -> None:
    rng = np.random.default_rng(0)
    results = []
    for index in range(4):
        wide, high = 300 + 7 * index, 200 - 9 * index
        labels = np.array([[index, *rng.uniform(0.3, 0.6, 2), *rng.uniform(0.1, 0.3, 2)]], np.float32)
        tall = round(128 * high / wide)
        spot = Letterbox(Window(0, 0, wide, high), (128, tall), 16, (128 - tall) // 2)
        # What a perfect network would say, in pixels of the frame.
        _, x, y, w, h = labels[0] * np.array([1, wide, high, wide, high])
        seen = spot.to_canvas(np.array([[x - w / 2, y - h / 2, x + w / 2, y + h / 2]]))
        rows = torch.tensor([[*seen[0], 1.0, index]])
        results.append(image_result(rows, spot, labels))
        assert np.abs(results[-1].found[:, :4] - results[-1].truth[:, 1:]).max() < 1e-3
    assert score(results, ["a", "b", "c", "d"]).map50 == pytest.approx(1.0)


def test_boxes_end_at_the_edge_of_the_image() -> None:
    spot = Letterbox(Window(0, 0, 100, 50), (64, 32), 0, 16)
    result = image_result(torch.tensor([[-5.0, 0.0, 70.0, 64.0, 1.0, 0.0]]), spot, np.zeros((0, 5), np.float32))
    assert result.found[0, :4].tolist() == [0, 0, 100, 50]


def test_results_survive_a_file(tmp_path: Path) -> None:
    results = [
        ImageResult(np.ones((2, 6), np.float32), np.zeros((0, 5), np.float32)),
        ImageResult(np.zeros((0, 6), np.float32), np.ones((3, 5), np.float32)),
    ]
    write_results(tmp_path / "found.npz", results, ["a", "ö"])
    back, names = read_results(tmp_path / "found.npz")
    assert names == ("a", "ö")
    assert [(len(one.found), len(one.truth)) for one in back] == [(2, 0), (0, 3)]
    write_results(tmp_path / "none.npz", [], ["a"])
    assert read_results(tmp_path / "none.npz") == ([], ("a",))


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        read_results(tmp_path / "nothing.npz")
    (tmp_path / "odd.npz").write_text("hello")
    with pytest.raises(UsageError, match="holds no detections"):
        read_results(tmp_path / "odd.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(UsageError, match="holds no detections"):
        read_results(tmp_path / "other.npz")
