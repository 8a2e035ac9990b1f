"""Times settings of a few jobs on this machine's GPU, one after the other, and compares their order with predictions.

python benchmarks/timing.py --out times.json          on a GPU
python benchmarks/timing.py --compare times.json      anywhere
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

WARMUP_STEPS, TIMED_STEPS = 4, 10
# Batches that are large enough for the GPU, and not Python, to limit the speed.
JOBS = {"resnet50-fp32": (224, (64, 128, 256)), "gpt-bf16": (512, (8, 16, 32)), "detector-fp16": (640, (16, 32, 64))}


def settings_of(size: int, batches: tuple[int, ...]) -> list[Any]:
    """Return twenty settings that differ in batch, precision, memory format and micro-batch."""
    from oomph.settings import Settings

    whole = [
        Settings(batch=batch, size=size, precision=precision, memory_format=layout)
        for batch, precision, layout in itertools.product(
            batches, ("fp32", "amp-fp16", "amp-bf16"), ("contiguous", "channels_last")
        )
    ]
    split = [
        Settings(batch=batches[-1], micro_batch=batches[-1] // 4, size=size, precision=precision)
        for precision in ("fp32", "amp-bf16")
    ]
    return whole + split


def with_cached_batches(job: Any, settings: Any) -> Any:
    """Return the Job with its batches kept on the GPU, so that creating data is not timed."""
    from torch.utils._pytree import tree_map

    from oomph.patches import convert_batch

    @functools.cache
    def batch(samples: int, size: Any) -> Any:
        return convert_batch(tree_map(lambda leaf: leaf.cuda(), job.batch(samples, size)), settings)

    return dataclasses.replace(job, batch=batch)


def time_step(job: Any, settings: Any) -> float:
    """Return the median seconds of a training step on the GPU."""
    import torch

    from oomph.monitor import TrainingStep

    step = TrainingStep(with_cached_batches(job, settings), settings, torch.device("cuda"))
    return statistics.median(step.time(WARMUP_STEPS + TIMED_STEPS)[WARMUP_STEPS:])


def measure(out: Path) -> None:
    """Time all settings of all jobs."""
    import torch
    from zoo import configs

    rows = []
    for name, (size, batches) in JOBS.items():
        for settings in settings_of(size, batches):
            seconds = time_step(configs()[name].job, settings)
            torch.cuda.empty_cache()
            rows.append({"job": name, **vars(settings), "seconds": seconds})
    machine = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    out.write_text(json.dumps({**machine, "rows": rows}, indent=1))


def ranks(values: list[float]) -> list[float]:
    """Return the rank of each value."""
    order = sorted(range(len(values)), key=values.__getitem__)
    return [float(order.index(index)) for index in range(len(values))]


def compare(file: Path) -> dict[str, float]:
    """Return Spearman's correlation of predicted and measured times by job."""
    from zoo import configs

    import oomph

    all_rows = json.loads(file.read_text())["rows"]
    correlations = {}
    for name in JOBS:
        rows = [row for row in all_rows if row["job"] == name]
        predicted = []
        for row in rows:
            settings = oomph.Settings(**{key: row[key] for key in row if key not in {"job", "seconds"}})
            predicted.append(oomph.predict(configs()[name].job, settings, "H200").seconds.value)
            variant = f"{settings.batch} {settings.micro_batch} {settings.precision} {settings.memory_format}"
            print(f"{name} {variant}: measured {row['seconds']:.4f} s, predicted {predicted[-1]:.4f} s")
        correlations[name] = statistics.correlation(ranks([row["seconds"] for row in rows]), ranks(predicted))
    return correlations


def main() -> None:
    """Measure or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args()
    if options.out:
        measure(options.out)
    if options.compare:
        print(json.dumps(compare(options.compare), indent=1))


if __name__ == "__main__":
    main()
