"""Runs the zoo on this machine's GPU under the caps that were predicted for it.

    python benchmarks/capped.py --predicted predicted.json --out capped.json [--seconds 300] [name …]

Each configuration under both allocators in a process of its own, several side by side: does it run when it is given
the high of `needed` and nothing more? Then, one after the other, each with expandable segments at the `full_speed`
that was predicted: how does its step time compare with that of a run without a cap, and did the allocator have to look
for memory?
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
SIDE_BY_SIDE = 8
TIMED = 8


def runs(name: str, cap: int) -> dict[str, Any]:
    """Whether three steps run under a cap, in this process."""
    import measure
    import torch
    from zoo import configs

    torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.mem_get_info()[1])
    try:
        measure.train(configs()[name])
    except Exception as error:  # noqa: BLE001  a failure is a row too
        return {"ran": False, "error": f"{type(error).__name__}: {error}"[:200]}
    return {"ran": True, "retries": torch.cuda.memory_stats()["num_alloc_retries"]}


def speed(name: str, cap: int) -> dict[str, Any]:
    """The median step time under a cap (none if 0) in this process, and how often the allocator looked for memory."""
    import measure
    import torch
    from zoo import configs

    if cap:
        torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.mem_get_info()[1])
    took: list[float] = []
    try:
        measure.train(configs()[name], steps=3 + TIMED, took=took)
    except Exception as error:  # noqa: BLE001  a failure is a row too
        return {"cap": cap, "error": f"{type(error).__name__}: {error}"[:200]}
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    return {"cap": cap, "seconds": statistics.median(took[3:]), "retries": retries}


def start(what: str, name: str, allocator: str, cap: int) -> subprocess.Popen[str]:
    """One configuration in a process of its own."""
    import measure

    environ = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": measure.ALLOCATORS[allocator], "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, __file__, what, name, allocator, str(cap)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def gather(what: str, waiting: list[tuple[str, str, int]], at_once: int, ends: float) -> list[dict[str, Any]]:
    """Rows of all that could be run until then."""
    running: list[subprocess.Popen[str]] = []
    rows: list[dict[str, Any]] = []
    while running or (waiting and time.time() < ends):
        while waiting and len(running) < at_once and time.time() < ends:
            running.append(start(what, *waiting.pop(0)))
        for process in [process for process in running if process.poll() is not None]:
            running.remove(process)
            lines = process.stdout.read().splitlines() if process.stdout else []
            rows += [json.loads(line) for line in lines if line.startswith("{")]
        time.sleep(0.05)
    return rows


def main() -> None:
    """Run all of them and say how many ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--predicted", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    import measure

    predicted = json.loads(options.predicted.read_text())
    names = options.names or list(predicted)
    caps = [(name, how, predicted[name][how]["needed_high"]) for how in measure.ALLOCATORS for name in names]
    began = time.time()
    ran = gather("runs", caps, SIDE_BY_SIDE, began + options.seconds)
    full = [
        (name, "expandable", cap) for name in names for cap in (0, int(predicted[name]["expandable"]["full_speed"]))
    ]
    timed = gather("speed", full, 1, began + options.seconds)
    options.out.write_text(json.dumps({**measure.machine(), "capped": ran, "full_speed": timed}, indent=1))
    for how in measure.ALLOCATORS:
        rows = [row for row in ran if row["allocator"] == how]
        failed = [row["name"] for row in rows if not row["ran"]]
        print(f"{how}: {len(rows) - len(failed)} of {len(rows)} ran at the high of needed; not {failed}")
    uncapped = {row["name"]: row["seconds"] for row in timed if not row["cap"] and "seconds" in row}
    capped = [row for row in timed if row["cap"] and "seconds" in row]
    ratios = sorted(((row["seconds"] / uncapped[row["name"]], row["name"]) for row in capped), reverse=True)
    print(f"at comfortable: {len(ratios)} timed; failed {[row['name'] for row in timed if 'error' in row]};")
    print(f"retries {[row['name'] for row in capped if row['retries']]}; slowest {ratios[:8]}")
    print(f"median {statistics.median(ratio for ratio, _ in ratios):.3f} of the time without a cap")


if __name__ == "__main__":
    if sys.argv[1:2] in (["runs"], ["speed"]):
        row = (runs if sys.argv[1] == "runs" else speed)(sys.argv[2], int(sys.argv[4]))
        print(json.dumps({"name": sys.argv[2], "allocator": sys.argv[3], **row}))
    else:
        main()
