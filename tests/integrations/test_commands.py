"""Real commands of frameworks under `oomph run`, unmodified: they run out of memory and are started again."""

from __future__ import annotations

import csv
import json
import os
import sys
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from tests.supervisor.runs import Ended, run

from .yolo_runs import save_dataset, save_network

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# Python runs this when it starts. From the second epoch on, a convolution of more than four images runs out of memory;
# in the first one, Ultralytics halves the batch by itself.
YOLO_SITE = """
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
# A script with the arguments of the Trainer. From the sixth step on, more than four samples run out of memory.
TRAINER = """
from zoo.torchvision_shim import declare_operators
declare_operators()
import pathlib, torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
data = [{"input_ids": torch.full((8,), n % 50), "labels": torch.full((8,), n % 50)} for n in range(160)]
class Model(GPT2LMHeadModel):
    def forward(self, input_ids=None, labels=None, **options):
        print("samples", len(input_ids), flush=True)
        if len(input_ids) > 4 and (pathlib.Path(args.output_dir) / "checkpoint-5").exists():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.25 GiB.")
        return super().forward(input_ids=input_ids, labels=labels, **options)
model = Model(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=64, n_positions=16))
trainer = Trainer(model, args, train_dataset=data)
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
print("steps", trainer.state.global_step, flush=True)
"""


def retry(command: list[str | Path], folder: Path, **environment: str) -> tuple[Ended, list[dict[str, Any]]]:
    """Run a command that is started again; return its end and the attempts."""
    paths = [str(folder), str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]
    variables: dict[str, Any] = {**environment, "PYTHONPATH": os.pathsep.join(paths)}
    ended = run(["--retry", "--json", "result.json", "--", *command], folder, **variables)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended, json.loads((folder / "result.json").read_text())["attempts"]


@pytest.mark.frameworks
def test_a_script_of_transformers_continues_its_checkpoint_with_the_same_effective_batch(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "train.py").write_text(TRAINER)
    options = "--output_dir out --per_device_train_batch_size 8 --save_steps 5 --max_steps 12"
    quiet = "--use_cpu True --disable_tqdm True --report_to none"
    ended, (first, second) = retry([sys.executable, "train.py", *options.split(), *quiet.split()], tmp_path)
    assert first["failure"] == "cuda-out-of-memory"
    assert second["argv"][-2:] == ["--resume_from_checkpoint", "out/checkpoint-5"]
    lines = ended.stdout.decode().splitlines()
    samples = [int(line.split()[1]) for line in lines if line.startswith("samples")]
    assert samples == [8] * 6 + [4] * 14, "seven steps are left, of two batches each"
    assert "steps 12" in lines


@pytest.mark.ultralytics
def test_yolo_is_started_again_with_half_the_batch_from_its_checkpoint(tmp_path: Path) -> None:
    package = util.find_spec("ultralytics")
    if package is None or package.origin is None:
        pytest.skip("Ultralytics is not installed")
    program = Path(package.origin).parents[1] / "bin/yolo"
    data, network = save_dataset(tmp_path / "images"), save_network(tmp_path)
    (tmp_path / "sitecustomize.py").write_text(YOLO_SITE)
    options = "batch=8 epochs=3 imgsz=64 device=cpu workers=0 plots=False val=False amp=False mosaic=0"
    places = [f"model={network}", f"data={data}", f"project={tmp_path / 'training'}"]
    offline = {"YOLO_OFFLINE": "true", "YOLO_CONFIG_DIR": str(tmp_path), "YOLO_AUTOINSTALL": "false"}
    ended, (first, second) = retry([program, "detect", "train", *places, *options.split()], tmp_path, **offline)
    assert first["failure"] == "cuda-out-of-memory"
    (checkpoint,) = tmp_path.glob("training/**/last.pt")
    assert second["argv"][-1] == "resume=True"
    assert (tmp_path / second["argv"][3].removeprefix("model=")).samefile(checkpoint)
    assert "batch=4" in second["argv"]
    with (checkpoint.parent.parent / "results.csv").open() as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == [1, 2, 3]
    assert b"batch 4 (was 8)" in ended.stderr
