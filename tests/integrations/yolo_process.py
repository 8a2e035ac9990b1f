"""Trains under a limit of the address space: `python -m tests.integrations.yolo_process plain|guarded FOLDER`."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import torch

from oomph.monitor import load_record
from oomph.units import MIB

from . import conftest  # noqa: F401  it declares torchvision's operators
from .yolo_runs import go_offline, save_dataset, save_network, train


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir()
    go_offline(folder)
    from ultralytics import YOLO

    from oomph.integrations.ultralytics import add_guard

    torch.set_num_threads(1)
    data, network, record = save_dataset(folder / "data", 32), save_network(folder), folder / "run.jsonl"

    def run(batch: int, size: int) -> None:
        model = YOLO(network)
        if kind == "guarded":
            record.unlink(missing_ok=True)
            add_guard(model, record=record)
        train(model, data, batch=batch, nbs=batch, imgsz=size, fraction=batch / 32, freezes_statistics=False)

    run(2, 64)  # torch and Ultralytics allocate some memory once
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 500 * MIB, resource.RLIM_INFINITY))
    run(32, 512)
    steps = load_record(record).steps if kind == "guarded" else []
    (folder / "micro_batches.json").write_text(json.dumps([step["micro_batches"] for step in steps]))


if __name__ == "__main__":
    main()
