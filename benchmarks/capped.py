"""Runs the zoo on this machine's GPU under the caps that were predicted for it.

    python benchmarks/capped.py --predicted predicted.json --out capped.json [--seconds 300] [name …]

First, all configurations run with both allocators, each in its own process and several at a time: do they run under the
high of `needed`? Then each runs alone with expandable segments, without a cap and at the predicted `full_speed`: how do
the step times compare, and did the allocator have to retry?
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
PARALLEL_RUNS = 8
WARMUP_STEPS, TIMED_STEPS = 3, 8


def run_capped(name: str, cap: int) -> dict[str, Any]:
    """Run three steps under a cap in this process."""
    import measure
    import torch
    from zoo import configs

    measure.set_cap(cap)
    try:
        measure.train(configs()[name])
    except Exception as error:  # noqa: BLE001  a failure is a row too
        return {"ran": False, "error": f"{type(error).__name__}: {error}"[:200]}
    return {"ran": True, "retries": torch.cuda.memory_stats()["num_alloc_retries"]}


def time_capped(name: str, cap: int) -> dict[str, Any]:
    """Return the median step time under a cap (none if 0) in this process, and the allocator's retries."""
    import measure
    import torch
    from zoo import configs

    from oomph.monitor import TrainingStep

    if cap:
        measure.set_cap(cap)
    config = configs()[name]
    try:
        step = TrainingStep(config.job, config.settings, torch.device("cuda"))
        seconds = step.time(WARMUP_STEPS + TIMED_STEPS)[WARMUP_STEPS:]
    except Exception as error:  # noqa: BLE001  a failure is a row too
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    return {"seconds": statistics.median(seconds), "retries": retries}


def start_process(task: str, name: str, allocator: str, cap: int) -> subprocess.Popen[str]:
    """Start a configuration in a new process."""
    import measure

    environ = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": measure.ALLOCATORS[allocator], "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, task, name, allocator, str(cap)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def run_all(task: str, queue: list[tuple[str, str, int]], parallel: int, deadline: float) -> list[dict[str, Any]]:
    """Run configurations until the deadline and return their rows."""
    running: list[subprocess.Popen[str]] = []
    rows: list[dict[str, Any]] = []
    while running or (queue and time.time() < deadline):
        while queue and len(running) < parallel and time.time() < deadline:
            running.append(start_process(task, *queue.pop(0)))
        for process in [process for process in running if process.poll() is not None]:
            running.remove(process)
            lines = process.stdout.read().splitlines() if process.stdout else []
            rows += [json.loads(line) for line in lines if line.startswith("{")]
        time.sleep(0.05)
    return rows


def print_summary(capped: list[dict[str, Any]], timed: list[dict[str, Any]]) -> None:
    """Print how many configurations ran, and the step times relative to those without a cap."""
    for allocator in sorted({row["allocator"] for row in capped}):
        rows = [row for row in capped if row["allocator"] == allocator]
        failed = [row["name"] for row in rows if not row["ran"]]
        print(f"{allocator}: {len(rows) - len(failed)} of {len(rows)} ran at the high of needed; failed: {failed}")
    uncapped = {row["name"]: row["seconds"] for row in timed if not row["cap"] and "seconds" in row}
    at_cap = [row for row in timed if row["cap"] and "seconds" in row]
    ratios = sorted(((row["seconds"] / uncapped[row["name"]], row["name"]) for row in at_cap), reverse=True)
    print(f"at full_speed: {len(ratios)} timed; failed: {[row['name'] for row in timed if 'error' in row]}")
    print(f"with retries: {[row['name'] for row in at_cap if row['retries']]}; slowest: {ratios[:8]}")
    if ratios:
        print(f"median {statistics.median(ratio for ratio, _ in ratios):.3f} of the time without a cap")


def main() -> None:
    """Run all configurations and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--predicted", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    import measure

    predicted = json.loads(options.predicted.read_text())
    names = options.names or list(predicted)
    deadline = time.time() + options.seconds
    caps = [(name, how, predicted[name][how]["needed_high"]) for how in measure.ALLOCATORS for name in names]
    capped = run_all("run", caps, PARALLEL_RUNS, deadline)
    full_speed = [
        (name, "expandable", cap) for name in names for cap in (0, int(predicted[name]["expandable"]["full_speed"]))
    ]
    timed = run_all("time", full_speed, 1, deadline)
    options.out.write_text(json.dumps({**measure.machine(), "capped": capped, "full_speed": timed}, indent=1))
    print_summary(capped, timed)


if __name__ == "__main__":
    if sys.argv[1:2] in (["run"], ["time"]):
        row = (run_capped if sys.argv[1] == "run" else time_capped)(sys.argv[2], int(sys.argv[4]))
        print(json.dumps({"name": sys.argv[2], "allocator": sys.argv[3], "cap": int(sys.argv[4]), **row}))
    else:
        main()
