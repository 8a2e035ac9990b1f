"""Commands that run exported files, and their results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from oomph.cli import run
from oomph.detect import HeadOutputs, read_weights

NAMES = ("disc", "square", "triangle", "cross")


def torch_outputs(weights: Path, images: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    """Return the raw outputs of the network by torch."""
    with torch.no_grad():
        levels = HeadOutputs(read_weights(weights).build()).eval()(torch.from_numpy(images))
    return [level.numpy() for level in levels]


def val_scores(weights: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the document of `oomph val`."""
    flags = ["--data", str(data), "--img", "64", "--batch", "4"]
    assert run(["val", "--weights", str(weights), *flags, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def detected_boxes(weights: Path, images: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    """Return the boxes of each image by `oomph detect`."""
    # Without suppression: neighbors of an untrained network are nearly equal, and either could win.
    flags = ["--img", "64", "--conf-thres", "0.5", "--iou-thres", "1", "--max-det", "1000", "--out", str(out)]
    assert run(["detect", str(images), "--weights", str(weights), *flags, *more, "--json"]) == 0
    return [image["boxes"] for image in json.loads(capsys.readouterr().out)["images"]]


def assert_same_boxes(before: Any, after: Any) -> None:
    """Check that two calls of `detected_boxes` returned the same boxes, in any order."""
    assert sum(map(len, before)) > 5
    for expected, found in zip(before, after, strict=True):
        assert len(found) == len(expected)
        for box in expected:
            assert any(_is_same(box, other) for other in found)


def _is_same(box: Any, other: Any) -> bool:
    return box[4] == other[4] and np.allclose([*box[:4], box[5]], [*other[:4], other[5]], rtol=0, atol=0.01)


def assert_json_only(method: str, folder: Path, out: Path) -> Any:
    """Run an int8 export, check that it prints nothing but a document, and return that."""
    flags = ["--weights", str(folder / "n.pt"), "--data", str(folder / "data/data.yaml"), "--img", "50"]
    command = [sys.executable, "-m", "oomph", "shrink", method, *flags, "--int8", "--out", str(out), "--json"]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    document = json.loads(process.stdout)
    assert process.stderr == ""
    assert document["imgsz"] == 64
    assert document["variants"][-1]["file"] == str(out)
    return document


def assert_one_sentence(weights: Path, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that `oomph val` rejects a file in one sentence."""
    assert run(["val", "--weights", str(weights), "--data", "data.yaml"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
