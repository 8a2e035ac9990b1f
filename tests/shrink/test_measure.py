from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from oomph.detect import DemoSize, HeadOutputs, save_weights, write_demo_dataset, yolov5
from oomph.errors import OomphError, UsageError
from oomph.shrink import Latency
from oomph.shrink._images import sample_images
from oomph.shrink._measure import compare_outputs, run_process
from oomph.shrink._measure_task import MeasureTask
from oomph.units import MIB


def test_latency_is_median_and_quartiles() -> None:
    assert Latency.of([5.0, 1.0, 2.0, 3.0, 4.0], threads=2) == Latency(3.0, 2.0, 4.0, runs=5, threads=2)


def test_differences_are_absolute(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1.0, 2.0], [3.0, 4.0]], np.float32))
    np.save(tmp_path / "b.npy", np.array([[1.0, 1.0], [3.0, 7.0]], np.float32))
    difference = compare_outputs("b", tmp_path / "a.npy", tmp_path / "b.npy")
    assert (difference.largest, difference.mean, difference.images) == (3.0, 1.0, 2)


@pytest.mark.medium
def test_images_are_letterboxed_and_spread_over_the_split(tmp_path: Path) -> None:
    data = write_demo_dataset(tmp_path, DemoSize(train=3, val=1))
    every = sample_images(data, "train", 64, 10)
    assert every.shape == (3, 3, 64, 64)
    assert every.dtype == np.uint8
    assert np.array_equal(sample_images(data, "train", 64, 2), every[[0, 2]])


@pytest.mark.medium
def test_images_that_cannot_be_decoded_are_one_sentence(tmp_path: Path) -> None:
    data = write_demo_dataset(tmp_path, DemoSize(train=1, val=1))
    image = tmp_path / "images/train/0000.png"
    content = image.read_bytes()
    image.write_bytes(content[:100] + bytes(1000) + content[1100:])
    with pytest.raises(UsageError, match=r"no train image of .* can be decoded"):
        sample_images(data, "train", 64, 4)


@pytest.mark.medium
def test_a_process_of_its_own_runs_the_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = yolov5("n", 4).eval()
    save_weights(tmp_path / "n.pt", model, list("abcd"))
    images = np.random.default_rng(0).integers(0, 256, (3, 3, 64, 64), np.uint8)
    np.save(tmp_path / "images.npy", images)
    file, images_file, outputs_file = (str(tmp_path / name) for name in ("n.pt", "images.npy", "outputs.npy"))
    seconds, memory = run_process(MeasureTask(file, images_file, outputs_file, warmup=1, runs=4, compared=2))
    assert len(seconds) == 4
    assert all(second > 0 for second in seconds)
    assert 50 * MIB < memory < 2000 * MIB
    with torch.no_grad():
        levels = HeadOutputs(model)(torch.from_numpy(images[1:2]).float() / 255)
    expected = np.concatenate([level.numpy().ravel() for level in levels])
    outputs = np.load(tmp_path / "outputs.npy")
    assert outputs.shape == (2, len(expected))
    assert np.allclose(outputs[1], expected, atol=1e-4)


@pytest.mark.medium
def test_a_file_that_cannot_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(OomphError, match=r"can't be run \(there is no file .*; export it again"):
        run_process(MeasureTask(str(tmp_path / "no.pt"), "", ""))


def test_the_measuring_process_imports_no_torch_by_itself() -> None:
    code = "import sys, oomph.shrink._measure_process; assert not {'torch', 'onnx', 'onnxruntime'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
