"""Measures the memory of the zoo on this machine's GPU: allocated, reserved and the smallest allocator cap.

    python benchmarks/measure.py --out results.jsonl [--predicted predicted.json] [--seconds 500] [name …]

Each configuration runs in its own process, several at a time, once with torch's default allocator and once with
expandable segments: three steps without a cap, then a bisection of the smallest cap under which they run.
Configurations that are already in the results file are skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

MIB = 1024**2
ALLOCATORS = {"expandable": "expandable_segments:True", "default": ""}
PARALLEL_RUNS = 8
STEPS = 3


def train(config: Any, steps: int = STEPS) -> None:
    """Run training steps of a configuration on the GPU."""
    import torch

    from oomph.monitor import TrainingStep

    step = TrainingStep(config.job, config.settings, torch.device("cuda"))
    for _ in range(steps):
        step.run()


def reset_gpu() -> None:
    """Release all cached memory of the process."""
    import torch

    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def set_cap(cap: int) -> None:
    """Cap torch's allocator at a size in bytes."""
    import torch

    torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.mem_get_info()[1])


def runs_under(config: Any, cap: int) -> bool:
    """Return True if three steps run with the allocator capped."""
    import torch

    set_cap(cap)
    ran = False
    with contextlib.suppress(torch.OutOfMemoryError, RuntimeError):
        train(config)
        ran = True
    reset_gpu()
    return ran


def measure(name: str, guess: int | None) -> dict[str, Any]:
    """Measure allocated, reserved and the smallest cap of a configuration; the bisection starts near the guess."""
    import torch
    from zoo import configs

    config = configs()[name]
    torch.manual_seed(0)
    start = time.time()
    train(config)
    row = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    reset_gpu()
    low, high = int(row["allocated"] * 0.75), row["reserved"]
    grain = max(2 * MIB, row["allocated"] // 400)
    if guess is not None:
        for probe in (guess + grain, guess - grain):
            if low < probe < high:
                low, high = (low, probe) if runs_under(config, probe) else (probe, high)
    while high - low > grain:
        middle = (low + high) // 2
        low, high = (low, middle) if runs_under(config, middle) else (middle, high)
    return {**row, "needed": high, "grain": grain, "seconds": round(time.time() - start, 1)}


def machine() -> dict[str, str]:
    """Return the GPU and the versions that the numbers were measured with."""
    import torch

    return {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
        "date": time.strftime("%Y-%m-%d"),
    }


def measure_and_print(name: str, allocator: str, guess: str) -> None:
    """Measure a configuration in this process and print its row."""
    try:
        row = measure(name, int(guess) if guess else None)
    except Exception as error:  # noqa: BLE001  a failure is a row too
        row = {"error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps({"name": name, "allocator": allocator, **row, **machine()}))


def start_process(name: str, allocator: str, guess: object) -> subprocess.Popen[str]:
    """Start the measurement of a configuration in a new process."""
    environ = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[allocator], "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, "one", name, allocator, str(guess)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def main() -> None:
    """Start the processes and collect their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--predicted", type=Path)
    parser.add_argument("--seconds", type=float, default=500)
    options = parser.parse_args()
    from zoo import configs

    measured = (
        {(row["name"], row["allocator"]) for row in map(json.loads, options.out.read_text().splitlines())}
        if options.out.exists()
        else set()
    )
    predicted = json.loads(options.predicted.read_text()) if options.predicted else {}
    queue = [
        (name, allocator)
        for allocator in ALLOCATORS
        for name in configs()
        if (not options.names or name in options.names) and (name, allocator) not in measured
    ]
    deadline = time.time() + options.seconds
    running: list[subprocess.Popen[str]] = []
    while running or (queue and time.time() < deadline):
        while queue and len(running) < PARALLEL_RUNS and time.time() < deadline:
            name, allocator = queue.pop(0)
            guess = predicted.get(name, {}).get(allocator, {}).get("needed", "")
            running.append(start_process(name, allocator, guess))
        for process in [process for process in running if process.poll() is not None]:
            running.remove(process)
            lines = process.stdout.read().splitlines() if process.stdout else []
            with options.out.open("a") as out:
                out.writelines(line + "\n" for line in lines if line.startswith("{"))
        if time.time() > deadline + 60:
            for process in running:
                process.kill()
            break
        time.sleep(0.1)


if __name__ == "__main__":
    measure_and_print(*sys.argv[2:5]) if sys.argv[1:2] == ["one"] else main()
