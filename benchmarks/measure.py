"""Measures the zoo on this machine's GPU: what each configuration allocates, reserves and needs.

    python benchmarks/measure.py --out results.jsonl [--predicted predicted.json] [--seconds 500] [name …]

Each configuration runs in a process of its own, several side by side, once with torch's default allocator and once with
expandable segments: three steps without a cap, then the smallest cap under which they run, by bisection. What is in the
results file already is not measured again.
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
SIDE_BY_SIDE = 8
STEPS = 3
# Small enough that random data never overflows: a skipped step would leave the optimizer without its state.
SCALE = 256.0


def train(config: Any, steps: int = STEPS, took: list[float] | None = None) -> None:
    """Steps as oomph defines them, on the GPU; their times, too, where a list is given."""
    import torch
    from torch.utils._pytree import tree_map

    from oomph.patches import convert_batch, convert_model

    settings, job = config.settings, config.job
    autocast = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(settings.precision)
    model = job.model().cuda().train()
    convert_model(model, settings)
    optimizer = job.optimizer(model)
    scaler = torch.amp.GradScaler("cuda", init_scale=SCALE, enabled=settings.precision == "amp-fp16")
    for _ in range(steps):
        began = time.perf_counter()
        for count in settings.micro_batch_sizes:
            batch = tree_map(lambda leaf: leaf.cuda(), job.batch(count, settings.size))
            batch = convert_batch(batch, settings)
            with torch.autocast("cuda", autocast, enabled=autocast is not None):
                loss = job.run(model, batch)
            scaler.scale(loss / len(settings.micro_batch_sizes)).backward()
            del batch, loss
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if took is not None:
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)


def forget() -> None:
    """Leave the GPU as a fresh process would find it."""
    import torch

    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def runs_under(config: Any, cap: int) -> bool:
    """Whether three steps run with the allocator capped."""
    import torch

    torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.mem_get_info()[1])
    ran = False
    with contextlib.suppress(torch.OutOfMemoryError, RuntimeError):
        train(config)
        ran = True
    forget()
    return ran


def measure(name: str, guess: int | None) -> dict[str, Any]:
    """Allocated, reserved and the smallest cap of one configuration."""
    import torch
    from zoo import configs

    config = configs()[name]
    torch.manual_seed(0)
    began = time.time()
    train(config)
    row = {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
    forget()
    low, high = int(row["allocated"] * 0.75), row["reserved"]
    grain = max(2 * MIB, row["allocated"] // 400)
    if guess is not None:
        for probe in (guess + grain, guess - grain):
            if low < probe < high:
                low, high = (low, probe) if runs_under(config, probe) else (probe, high)
    while high - low > grain:
        middle = (low + high) // 2
        low, high = (low, middle) if runs_under(config, middle) else (middle, high)
    return {**row, "needed": high, "grain": grain, "seconds": round(time.time() - began, 1)}


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    import torch

    return {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
        "date": time.strftime("%Y-%m-%d"),
    }


def one(name: str, allocator: str, guess: str) -> None:
    """Measure one configuration in this process and print it."""
    try:
        row = measure(name, int(guess) if guess else None)
    except Exception as error:  # noqa: BLE001  a failure is a row too
        row = {"error": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps({"name": name, "allocator": allocator, **row, **machine()}))


def main() -> None:
    """Start the processes and gather their rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--predicted", type=Path)
    parser.add_argument("--seconds", type=float, default=500)
    options = parser.parse_args()
    from zoo import configs

    done = (
        {(row["name"], row["allocator"]) for row in map(json.loads, options.out.read_text().splitlines())}
        if options.out.exists()
        else set()
    )
    predicted = json.loads(options.predicted.read_text()) if options.predicted else {}
    waiting = [
        (name, allocator)
        for allocator in ALLOCATORS
        for name in configs()
        if (not options.names or name in options.names) and (name, allocator) not in done
    ]
    ends = time.time() + options.seconds
    running: list[subprocess.Popen[str]] = []
    while running or (waiting and time.time() < ends):
        while waiting and len(running) < SIDE_BY_SIDE and time.time() < ends:
            name, allocator = waiting.pop(0)
            guess = predicted.get(name, {}).get(allocator, {}).get("needed", "")
            environ = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": ALLOCATORS[allocator], "HF_HUB_OFFLINE": "1"}
            command = [sys.executable, __file__, "one", name, allocator, str(guess)]
            running.append(
                subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            )
        for process in [process for process in running if process.poll() is not None]:
            running.remove(process)
            lines = process.stdout.read().splitlines() if process.stdout else []
            with options.out.open("a") as out:
                out.writelines(line + "\n" for line in lines if line.startswith("{"))
        if time.time() > ends + 60:
            for process in running:
                process.kill()
            break
        time.sleep(0.1)


if __name__ == "__main__":
    one(*sys.argv[2:5]) if sys.argv[1:2] == ["one"] else main()
