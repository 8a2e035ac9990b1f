from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oomph.detect import ImageResult, letterbox, plain_sample, read_results, score, write_results
from oomph.detect._results import image_result
from oomph.errors import MissingFile, WrongCall

from .test_augment import Squares


def test_results_are_in_pixels_of_the_original() -> None:
    source = Squares()
    results = []
    for index in range(4):
        image = source.image(index)
        _, fit = letterbox(image, (96, 128))
        _, labels = plain_sample(source, index, (96, 128))
        # What a perfect network would say, in pixels of the frame.
        frame = torch.tensor([128.0, 96.0, 128.0, 96.0])
        x, y, w, h = (torch.from_numpy(labels[:, 1:]) * frame).unbind(1)
        rows = torch.stack((x - w / 2, y - h / 2, x + w / 2, y + h / 2, torch.ones(1), torch.tensor(labels[:, 0])), 1)
        results.append(image_result(rows, fit, source.labels(index)))
        assert np.abs(results[-1].found[:, :4] - results[-1].truth[:, 1:]).max() < 1.5
    assert score(results, ["a", "b", "c", "d"]).map50 == pytest.approx(1.0)


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
    with pytest.raises(WrongCall, match="holds no detections"):
        read_results(tmp_path / "odd.npz")
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(WrongCall, match="holds no detections"):
        read_results(tmp_path / "other.npz")
