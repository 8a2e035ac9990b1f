"""Predict the zoo for a GPU that is not present; the result is the input of `measure.py` and `compare.py`.

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
    """Predict one configuration under both allocators."""
    from oomph.machine import find_target
    from oomph.prediction import predict_trace, trace_device
    from oomph.trace import trace_step

    target = find_target(gpu)
    start = time.time()
    trace = trace_step(config.job, config.settings, trace_device(target))
    rows: dict[str, Any] = {}
    for allocator in ("expandable", "default"):
        settings = dataclasses.replace(config.settings, allocator=allocator)
        prediction = predict_trace(trace, settings, target)
        rows[allocator] = {
            "allocated": prediction.allocated.value,
            "reserved": prediction.reserved.value,
            "needed": prediction.needed.value,
            "needed_high": int(prediction.needed.high),
            "full_speed": prediction.full_speed.value,
        }
    return {**rows, "assumptions": list(trace.assumptions), "seconds": round(time.time() - start, 2)}


def predict_named(name: str, gpu: str = "H200") -> dict[str, Any]:
    """Predict a configuration by name, for worker processes that can't receive the Job itself."""
    from zoo import configs

    return predict(configs()[name], gpu)


def main() -> None:
    """Predict the named configurations, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="H200")
    options = parser.parse_args()
    from zoo import configs

    selected = {name: config for name, config in configs().items() if not options.names or name in options.names}
    predictions = {name: predict(config, options.gpu) for name, config in selected.items()}
    options.out.write_text(json.dumps(predictions, indent=1))


if __name__ == "__main__":
    main()
