"""What watching costs: the time of one sample, and the CPU time that a sampled training loop takes more.

Run with `python benchmarks/sampler.py`. Prints one JSON document. The loop alternates between blocks with and without
the sampler, so that a busy moment hits both alike; what is told is the median of the ratios of neighbours.
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

_CHILDREN = (0, 8, 32)
_READS = 200
_BLOCKS = 12
_STEPS = 1000
_FAST = 0.1  # ten samples a second: ten times the default


def cost_of_a_sample(children: int) -> dict[str, float]:
    """Median milliseconds of one look at this process with so many children: by the clock, and of CPU time."""
    code = "print('ready', flush=True); input()"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(children)
    ]
    for child in started:
        assert child.stdout is not None  # noqa: S101  it is a pipe
        child.stdout.readline()
    wall, spent = [], []
    with Probe() as probe:
        probe.read()  # counts shared pages, which every fifteenth second does
        for _ in range(_READS):
            began, used = time.perf_counter(), time.thread_time()
            probe.read()
            wall.append(time.perf_counter() - began)
            spent.append(time.thread_time() - used)
    for child in started:
        child.communicate(b"\n")
    return {
        "milliseconds": round(1000 * statistics.median(wall), 3),
        "CPU milliseconds": round(1000 * statistics.median(spent), 3),
    }


def slowdown(interval: float) -> float:
    """How much more CPU time a training loop takes with the sampler, as a share."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = torch.randn(64, 256), torch.randint(0, 10, (64,))

    def block() -> float:
        began = time.process_time()
        for _ in range(_STEPS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        return time.process_time() - began

    block()
    ratios = []
    with tempfile.TemporaryDirectory() as folder, Recorder(Path(folder) / "run.jsonl") as recorder:
        for _ in range(_BLOCKS):
            plain = block()
            with Sampler(recorder, interval):
                time.sleep(0.2)  # its start, which happens once in a run
                ratios.append(block() / plain)
    return round(statistics.median(ratios) - 1, 4)


def main() -> None:
    """Measure and print."""
    samples = {f"{children} children": cost_of_a_sample(children) for children in _CHILDREN}
    told = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "a sample": samples,
        "CPU time added at 10 samples a second": slowdown(_FAST),
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
