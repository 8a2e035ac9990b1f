"""Times settings of a few jobs on this machine's GPU, in series, and compares their order with the predicted one.

python benchmarks/timing.py --out times.json          on a GPU
python benchmarks/timing.py --compare times.json      anywhere
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

WARM_UP, TIMED = 4, 10
# Batches large enough that the GPU, and not the Python that feeds it, sets the time.
JOBS = {"resnet50-fp32": (224, (64, 128, 256)), "gpt-bf16": (512, (8, 16, 32)), "detector-fp16": (640, (16, 32, 64))}


def settings_of(size: int, batches: tuple[int, ...]) -> list[Any]:
    """Twenty settings that differ in batch, precision, layout and pieces."""
    from oomph.settings import Settings

    found = [
        Settings(batch=batch, size=size, precision=precision, memory_format=layout)
        for batch, precision, layout in itertools.product(
            batches, ("fp32", "amp-fp16", "amp-bf16"), ("contiguous", "channels_last")
        )
    ]
    pieces = [
        Settings(batch=batches[-1], micro_batch=batches[-1] // 4, size=size, precision=precision)
        for precision in ("fp32", "amp-bf16")
    ]
    return found + pieces


def time_step(job: Any, settings: Any) -> float:
    """Median seconds of a step on the GPU."""
    import torch
    from torch.utils._pytree import tree_map

    from oomph.patches import convert_batch, convert_model

    autocast = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(settings.precision)
    model = job.model().cuda().train()
    convert_model(model, settings)
    optimizer = job.optimizer(model)
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0, enabled=settings.precision == "amp-fp16")
    batches = [
        convert_batch(tree_map(lambda leaf: leaf.cuda(), job.batch(count, settings.size)), settings)
        for count in settings.micro_batch_sizes
    ]
    taken = []
    for _ in range(WARM_UP + TIMED):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for batch in batches:
            with torch.autocast("cuda", autocast, enabled=autocast is not None):
                loss = job.run(model, batch)
            scaler.scale(loss / len(batches)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[WARM_UP:])


def measure(out: Path) -> None:
    """Time every setting of every job."""
    import torch
    from zoo import configs

    rows = []
    for name, (size, batches) in JOBS.items():
        for settings in settings_of(size, batches):
            seconds = time_step(configs()[name].job, settings)
            torch.cuda.empty_cache()
            rows.append({"job": name, **vars(settings), "seconds": seconds})
    about = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "date": time.strftime("%Y-%m-%d")}
    out.write_text(json.dumps({**about, "rows": rows}, indent=1))


def ranks(values: list[float]) -> list[float]:
    """The rank of each value."""
    order = sorted(range(len(values)), key=values.__getitem__)
    return [float(order.index(index)) for index in range(len(values))]


def compare(file: Path) -> dict[str, float]:
    """Spearman's correlation of predicted and measured times, by job."""
    from zoo import configs

    import oomph

    rows = json.loads(file.read_text())["rows"]
    found = {}
    for name in JOBS:
        mine = [row for row in rows if row["job"] == name]
        predicted = []
        for row in mine:
            settings = oomph.Settings(**{key: row[key] for key in row if key not in {"job", "seconds"}})
            predicted.append(oomph.predict(configs()[name].job, settings, "H200").seconds.value)
            how = f"{settings.batch} {settings.micro_batch} {settings.precision} {settings.memory_format}"
            print(f"{name} {how}: measured {row['seconds']:.4f} s, predicted {predicted[-1]:.4f} s")
        found[name] = statistics.correlation(ranks([row["seconds"] for row in mine]), ranks(predicted))
    return found


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
