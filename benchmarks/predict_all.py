"""Predicts the zoo for a GPU without one, and writes what `measure.py` and the tables start from.

python benchmarks/predict_all.py --out predicted.json [--gpu H200] [name …]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]


def predict(config: Any, gpu: str) -> dict[str, Any]:
    """One configuration under both allocators."""
    from oomph.machine import find_target
    from oomph.prediction import predict_trace
    from oomph.trace import Device, trace_step

    target = find_target(gpu)
    device = Device(capability=target.capability, processors=target.processors, threads=target.threads)
    began = time.time()
    trace = trace_step(config.job, config.settings, device)
    rows: dict[str, Any] = {}
    for allocator in ("expandable", "default"):
        settings = dataclasses.replace(config.settings, allocator=allocator)
        made = predict_trace(trace, settings, target)
        rows[allocator] = {
            "allocated": made.allocated.value,
            "reserved": made.reserved.value,
            "needed": made.needed.value,
            "needed_high": int(made.needed.high),
            "full_speed": made.full_speed.value,
        }
    return {**rows, "seconds": round(time.time() - began, 2)}


def predict_named(name: str, gpu: str = "H200") -> dict[str, Any]:
    """The same by name, for a process that is handed nothing else."""
    from zoo import configs

    return predict(configs()[name], gpu)


def main() -> None:
    """Predict every configuration that was named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="H200")
    options = parser.parse_args()
    from zoo import configs

    wanted = {name: config for name, config in configs().items() if not options.names or name in options.names}
    options.out.write_text(
        json.dumps({name: predict(config, options.gpu) for name, config in wanted.items()}, indent=1)
    )


if __name__ == "__main__":
    main()
