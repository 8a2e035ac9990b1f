"""Cost of monitoring: the time of one sample, and the CPU time that sampling adds to a training loop.

Run with `python benchmarks/sampler.py`. Prints one JSON document. The loop alternates between blocks with and without
the sampler, so that other load affects both equally; the result is the median of the ratios of neighboring blocks.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from oomph.monitor import Probe, Recorder, Sampler

_CHILD_COUNTS = (0, 8, 32)
_READS = 200
_BLOCKS = 12
_STEPS = 1000
_INTERVAL_SECONDS = 0.1  # ten samples per second, ten times the default


def sample_cost(children: int) -> dict[str, float]:
    """Return the median wall and CPU time of reading this process and its children, in milliseconds."""
    code = "print('ready', flush=True); input()"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(children)
    ]
    for child in processes:
        assert child.stdout is not None  # noqa: S101  a pipe
        child.stdout.readline()
    wall, cpu = [], []
    with Probe() as probe:
        probe.read()  # the first reading counts shared pages, which happens only every 15 seconds
        for _ in range(_READS):
            started, cpu_started = time.perf_counter(), time.thread_time()
            probe.read()
            wall.append(time.perf_counter() - started)
            cpu.append(time.thread_time() - cpu_started)
    for child in processes:
        child.communicate(b"\n")
    return {
        "milliseconds": round(1000 * statistics.median(wall), 3),
        "CPU milliseconds": round(1000 * statistics.median(cpu), 3),
    }


def slowdown(interval: float) -> float:
    """Return the fraction by which the sampler increases the CPU time of a training loop."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(64, 256), torch.randint(0, 10, (64,))

    def block() -> float:
        started = time.process_time()
        for _ in range(_STEPS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        return time.process_time() - started

    block()
    ratios = []
    with tempfile.TemporaryDirectory() as folder, Recorder(Path(folder) / "run.jsonl") as recorder:
        for _ in range(_BLOCKS):
            plain = block()
            with Sampler(recorder, interval):
                time.sleep(0.2)  # exclude the start of the sampler, which happens once per run
                ratios.append(block() / plain)
    return round(statistics.median(ratios) - 1, 4)


def main() -> None:
    """Measure and print the results."""
    costs = {f"{children} children": sample_cost(children) for children in _CHILD_COUNTS}
    results = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "one sample": costs,
        "CPU time added at 10 samples per second": slowdown(_INTERVAL_SECONDS),
    }
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
