"""Runs to report: Records and run folders, written line by line or by real runs."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from oomph.monitor import Recorder
from oomph.planner import Plan, PlanChange
from oomph.prediction import Prediction
from oomph.recovery import record_plan
from oomph.settings import Settings
from oomph.units import GIB, MIB

START = 1_794_700_000.0
HEADER = {
    "oomph": "record",
    "version": 1,
    "start_time": START,
    "pid": 4242,
    "process_start_time": START - 5,
    "host": "gpu-box",
    "system": "linux",
    "program": "train.py",
    "oomph_version": "0.1.0",
    "resumed": False,
}
TOTAL = 24 * GIB


def write_record(path: Path, lines: Iterable[Mapping[str, Any]], *, ended: bool = True) -> Path:
    """Write a Record of given lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    last = START
    with path.open("w") as file:
        file.write(json.dumps(HEADER) + "\n")
        for line in lines:
            last = max(last, line["t"])
            file.write(json.dumps(line) + "\n")
        if ended:
            file.write(json.dumps({"t": last, "event": "end"}) + "\n")
    return path


def gpu_lines(samples: int, device: int = 0, gpus: int = 1) -> list[dict[str, Any]]:
    """Return samples and steps of a run on a GPU, one a second."""
    return list(iter_gpu_lines(samples, 1.0, device, gpus))


def iter_gpu_lines(samples: int, interval: float, device: int = 0, gpus: int = 1) -> Iterator[dict[str, Any]]:
    """Yield samples and steps of a run on a GPU, whose memory goes up and down."""
    prediction = {
        "allocated": 11 * GIB,
        "reserved": 13 * GIB,
        "host": 5 * GIB,
        "budget": 20 * GIB,
        "target": "RTX 4090",
    }
    yield {"t": START, "event": "prediction", **prediction}
    for number in range(samples):
        at = round(START + number * interval, 3)
        allocated = int((6 + 4 * math.sin(number / 50)) * GIB) + number * 512
        sample = {
            "ram_total": 64 * GIB,
            "ram_available": 40 * GIB,
            "swap_total": 8 * GIB,
            "swap_used": 100 * MIB + number,
            "swap_in_rate": 0,
            "swap_out_rate": number % 1000,
            "cgroup_limit": 32 * GIB,
            "cgroup_used": 10 * GIB,
            "shm_total": 32 * GIB,
            "shm_used": 600 * MIB,
            "rss": 9 * GIB + number % 1000,
            "main_rss": 3 * GIB,
            "children": 8,
            "gpus": [gpu_fields(index, index == device) for index in range(gpus)],
            "torch": [
                {"device": device, "allocated": allocated, "peak": 11 * GIB, "reserved": 12 * GIB, "alloc_retries": 0}
            ],
        }
        step = {"step": number + 1, "seconds": 0.3, "wait": 0.02, "loss": 3 / (1 + number / 100), "micro_batches": 2}
        yield {"t": at, "sample": sample}
        yield {"t": at, "step": {**step, "retries": 0, "lr": 0.01, "grad_norm": 1.5}}


def gpu_fields(index: int, is_used: bool) -> dict[str, Any]:  # noqa: FBT001
    """Return the fields of a GPU that this rank, or another one, uses."""
    used = {"tree_used": 13 * GIB, "others_used": 0} if is_used else {"tree_used": 0, "others_used": 13 * GIB}
    return {"index": index, "name": "NVIDIA GeForce RTX 4090", "total": TOTAL, "free": 11 * GIB, **used}


def plan_of(prediction: Prediction) -> Plan:
    """Return a plan with a change."""
    change = PlanChange("the batch of 8 is split", "the budget is 1 GiB", "BatchNorm sees micro-batches", -MIB, 0.01)
    settings = Settings(batch=8, size=64), Settings(batch=8, micro_batch=2, size=64)
    return Plan(*settings, GIB, prediction, prediction, (change,), reserved=64 * MIB)


RESULTS = (
    "epoch,loss,box_loss,map50,map50_95,lr,images_per_second,peak_bytes\n"
    "1,1.5,0.5,,,0.01,100.5,1000\n2,1.25,0.4,0.5,0.25,0.02,101,1000\n3,1.0,0.3,0.75,0.5,0.01,102,1000\n"
)


def write_run_folder(folder: Path, prediction: Prediction) -> Path:
    """Write the folder of a finished run."""
    folder.mkdir(parents=True)
    with Recorder(folder / "record.jsonl") as recorder:
        record_plan(recorder, plan_of(prediction))
        for number in range(5):
            recorder.sample({"rss": 500 * MIB + number * 4096, "main_rss": 500 * MIB, "ram_total": 8 * GIB})
            recorder.step({"step": number + 1, "seconds": 0.25 + number / 100, "wait": 0.01, "micro_batches": 4})
    (folder / "results.csv").write_text(RESULTS)
    (folder / "config.json").write_text(
        json.dumps({"resolved": {"epochs": 3, "imgsz": 64, "data": "data.yaml", "cfg": "n"}})
    )
    issue = {"subject": "image", "problem": "truncated", "count": 2, "broken": True, "examples": ["a b.jpg"]}
    (folder / "data_issues.json").write_text(json.dumps({"train": [issue], "val": []}))
    for name in ("train_batch0.jpg", "val_predictions.png"):
        Image.new("RGB", (2000, 1000), (90, 160, 60)).save(folder / name)
    (folder / "weights").mkdir()
    for name in ("best.pt", "state.pt"):
        (folder / "weights" / name).write_bytes(b"")
    return folder


@contextmanager
def watched_process(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that writes a Record, wait for its first samples, and kill it at the end."""
    code = """
import sys, time, oomph
with oomph.watch(sys.argv[1], interval=0.05) as record:
    for number in range(10**6):
        record.step({"step": number, "seconds": 0.01})
        time.sleep(0.01)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(file)]) as process:
        deadline = time.monotonic() + 60
        while not file.exists() or file.read_bytes().count(b'"sample"') < 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process
        process.kill()
