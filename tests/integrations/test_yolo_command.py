"""The `yolo` command of Ultralytics under `oomph run`, unmodified: it runs out of memory and is started again."""

from __future__ import annotations

import csv
import json
import os
from importlib import util
from pathlib import Path

import pytest

from tests.supervisor.runs import run

from .yolo_runs import save_dataset, save_network

pytestmark = [
    pytest.mark.ultralytics,
    pytest.mark.skipif(util.find_spec("ultralytics") is None, reason="Ultralytics is not installed"),
]
REPO = Path(__file__).parents[2]
# Python runs this when it starts. From the second epoch on, a convolution of more than four images runs out of memory;
# in the first one, Ultralytics halves the batch by itself.
SITE = """
import pathlib, sys
if any(word.endswith("yolo") for word in sys.orig_argv[:3]):
    import torch
    from zoo.torchvision_shim import import_detection
    import_detection()
    conv2d = torch.nn.functional.conv2d
    def limited(images, *args, **kwargs):
        if len(images) > 4 and torch.is_grad_enabled() and any(pathlib.Path("training").glob("**/last.pt")):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.25 GiB.")
        return conv2d(images, *args, **kwargs)
    torch.nn.functional.conv2d = limited
"""


def test_yolo_is_started_again_with_half_the_batch_from_its_checkpoint(tmp_path: Path) -> None:
    data, network = save_dataset(tmp_path / "images"), save_network(tmp_path)
    (tmp_path / "sitecustomize.py").write_text(SITE)
    program = Path(str(util.find_spec("ultralytics").origin)).parents[1] / "bin/yolo"  # type: ignore[union-attr]
    options = "batch=8 epochs=3 imgsz=64 device=cpu workers=0 plots=False val=False amp=False mosaic=0"
    places = [f"model={network}", f"data={data}", f"project={tmp_path / 'training'}"]
    command = [program, "detect", "train", *places, *options.split()]
    ended = run(
        ["--retry", "--json", "result.json", "--", *command],
        tmp_path,
        PYTHONPATH=os.pathsep.join([str(tmp_path), str(REPO / "benchmarks"), os.environ.get("PYTHONPATH", "")]),
        YOLO_OFFLINE="true",
        YOLO_CONFIG_DIR=str(tmp_path),
        YOLO_AUTOINSTALL="false",
    )
    assert ended.returncode == 0, ended.stderr.decode()
    first, second = json.loads((tmp_path / "result.json").read_text())["attempts"]
    assert first["failure"] == "cuda-out-of-memory"
    (checkpoint,) = tmp_path.glob("training/**/last.pt")
    assert second["argv"][-1] == "resume=True"
    assert (tmp_path / second["argv"][3].removeprefix("model=")).samefile(checkpoint)
    assert "batch=4" in second["argv"]
    with (checkpoint.parent.parent / "results.csv").open() as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == [1, 2, 3]
    assert b"batch 4 (was 8)" in ended.stderr
