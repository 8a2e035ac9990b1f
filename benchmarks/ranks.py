"""Train on the demo dataset with one process and with two ranks, one of which runs out of memory once.

    python benchmarks/ranks.py --seeds 0 1 2 --out ranks.json

Both train with the same seeds and the same batch, in processes of one thread. Compare the difference of their mAP with
the difference between seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
from oomph.detect import StepStats, demo_config, train, write_demo_dataset
from oomph.distributed import init_distributed
from oomph.planner import Plan

FAILING_RANK = 1
FAILING_CALL = 13_000  # convolution calls: in the fifth of 15 epochs


class SilentProgress:
    """Ignores all progress."""

    def log(self, message: str) -> None:
        """Ignore a message."""

    def on_progress(self, task: str, done: int, total: int | None) -> None:
        """Ignore a task."""

    def on_plan(self, plan: Plan) -> None:
        """Ignore the plan."""

    def on_step(self, stats: StepStats) -> None:
        """Ignore a step."""

    def on_epoch_end(self, row: dict[str, Any]) -> None:
        """Ignore an epoch."""


def break_once() -> None:
    """Let one layer run out of memory, once."""
    calls = 0

    def hook(module: nn.Module, _: Any, output: Any) -> None:
        nonlocal calls
        if isinstance(module, nn.Conv2d) and module.training and type(output) is torch.Tensor:  # not a fake tensor
            calls += 1
            if calls == FAILING_CALL:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    register_module_forward_hook(hook)


def child(folder: Path, seed: int) -> None:
    """Train one rank; rank 0 prints the result."""
    torch.set_num_threads(1)
    run_dir = folder / f"{os.environ.get('WORLD_SIZE', 'single')}-{seed}"
    config = replace(
        demo_config(folder / "data" / "data.yaml", run_dir),
        seed=seed,
        device="cpu",
        workers=1,
        budget_above_start=None,
    )
    started = time.perf_counter()
    with init_distributed("cpu") as dist:
        if dist.rank == FAILING_RANK:
            break_once()
        result = train(config, SilentProgress(), dist=dist)
        retries = dist.gather(result.retries)
    if dist.is_main:
        best = result.best or {}
        scores = {name: round(best[name], 4) for name in ("map50", "map50_95")}
        seconds = round(time.perf_counter() - started)
        row = {"ranks": dist.world_size, "seed": seed, **scores, "seconds": seconds, "retries": retries}
        print(json.dumps(row))


def start(folder: Path, ranks: int, seed: int) -> subprocess.Popen[str]:
    """Start a run in separate processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", f"--master-port={port}"]
    command = [sys.executable, *(torchrun if ranks > 1 else []), __file__, "--child", str(folder), "--seed", str(seed)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def main() -> None:
    """Train with one process and with two ranks, for every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.seed)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_demo_dataset(folder / "data")
        pending = [(ranks, seed) for seed in options.seeds for ranks in (2, 1)]
        while pending:
            current, pending = pending[: options.parallel], pending[options.parallel :]
            for process in [start(folder, *run) for run in current]:
                output = process.communicate()[0]
                rows += [json.loads(line) for line in output.splitlines() if line.startswith("{")]
                print(rows[-1] if rows else f"no result: {output}", flush=True)
    results: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version(), "runs": rows}
    for ranks in (1, 2):
        scores = [row["map50"] for row in rows if row["ranks"] == ranks]
        results[f"map50 of {ranks}"] = (
            {"mean": statistics.mean(scores), "spread": max(scores) - min(scores)} if scores else None
        )
    print(json.dumps({name: value for name, value in results.items() if name != "runs"}))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
