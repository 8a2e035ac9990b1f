"""Predicts third-party models and runs them on this machine's GPU: without a cap, and capped at the high of `needed`.

    python benchmarks/third_party.py --out third-party.jsonl [--seconds 450] [--histories 0.01] [name …]
    python benchmarks/third_party.py --out third-party.jsonl --summary
    python benchmarks/third_party.py --out third-party.jsonl --history NAME [NAME …]

Each task runs in its own process: the prediction, without a GPU; three steps, which measure; three steps in a fresh
process with the allocator capped. Several run at a time, all with expandable segments. Each appends one line to the
results; tasks that are already there are skipped. `--histories` also records where the memory at the peak comes from,
for all models whose error exceeds a fraction; `--history` does so for named ones. Histories are appended to
`<out>.histories.gz`, one line of JSON each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
MIB = 1024**2
PARALLEL = {"cpu": 7, "gpu": 9}
TASK_SECONDS = 150  # after which a process is killed and its row is an error
EVENTS_BEFORE_PEAK, EVENTS_AFTER_PEAK = 120, 40
KEY_FRAMES = 4


def predict(name: str, _: int) -> dict[str, Any]:
    """Predict a configuration for an H200."""
    import predict_all
    import torch
    from zoo import third_party

    torch.set_num_threads(1)
    return predict_all.predict(third_party()[name], "H200")


def measure(name: str, cap: int) -> dict[str, Any]:
    """Measure three steps, with the allocator capped unless the cap is 0."""
    import measure as gpu
    import torch
    from zoo import third_party

    from oomph.monitor import TrainingStep

    torch.manual_seed(0)
    if cap:
        gpu.set_cap(cap)
    config = third_party()[name]
    step = TrainingStep(config.job, config.settings, torch.device("cuda"))
    built, peaks = torch.cuda.memory_allocated(), [torch.cuda.max_memory_allocated()]
    for _ in range(gpu.STEPS):
        torch.cuda.reset_peak_memory_stats()
        step.run()
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated())
    stats = torch.cuda.memory_stats()
    return {
        "allocated": max(peaks),
        "reserved": torch.cuda.max_memory_reserved(),
        "built": built,
        "resting": torch.cuda.memory_allocated(),
        "peaks": peaks,
        "retries": stats["num_alloc_retries"],
        **gpu.machine(),
    }


def capped(name: str, cap: int) -> dict[str, Any]:
    """Run three steps under a cap."""
    return {"ran": True, "cap": cap, **measure(name, cap)}


def history(name: str, _: int) -> dict[str, Any]:
    """Run three steps and return the allocations that are live at the peak, and the events around it."""
    import torch

    torch.cuda.memory._record_memory_history(context="all", stacks="all", max_entries=5_000_000)
    measure(name, 0)
    events = [
        event
        for event in torch.cuda.memory._snapshot()["device_traces"][0]
        if event["action"] in {"alloc", "free_requested"}
    ]
    live = peak = position = 0
    for index, event in enumerate(events):
        live += event["size"] if event["action"] == "alloc" else -event["size"]
        if live > peak:
            peak, position = live, index
    at_peak: dict[int, dict[str, Any]] = {}
    for event in events[: position + 1]:
        if event["action"] == "alloc":
            at_peak[event["addr"]] = event
        else:
            at_peak.pop(event["addr"], None)
    groups = Counter((event["size"], _where(event)) for event in at_peak.values())
    around = events[max(position - EVENTS_BEFORE_PEAK, 0) : position + EVENTS_AFTER_PEAK]
    signed = [(event["size"] if event["action"] == "alloc" else -event["size"], _where(event)) for event in around]
    live_groups = sorted(((size * count, size, count, where) for (size, where), count in groups.items()), reverse=True)
    return {"requested": peak, "live": live_groups, "around": signed}


def _where(event: dict[str, Any]) -> str:
    """Return the nearest Python frames outside torch and the nearest kernels of an event."""
    python, kernels = [], []
    for frame in event.get("frames", []):
        file, name = frame["filename"], frame["name"]
        if file.endswith(".py"):
            if "-packages/torch/" not in file or "/torch/optim/" in file:
                python.append(f"{'/'.join(file.split('/')[-2:])}:{frame['line']}")
        elif name.startswith(("at::native", "cudnn", "void at::", "vision::", "torch::autograd::generated")):
            kernels.append(name.split("(")[0][:70])
    return " < ".join(kernels[:KEY_FRAMES]) + " | " + " < ".join(python[:KEY_FRAMES])


TASKS = {"predict": predict, "measure": measure, "capped": capped, "history": history}


def run_task(task: str, name: str, cap: int) -> None:
    """Run a task in this process and print its row; a failure is a row too."""
    start = time.time()
    try:
        row = TASKS[task](name, cap)
    except Exception as error:  # noqa: BLE001
        row = {"error": f"{type(error).__name__}: {error}"[:400]}
    row["wall"] = round(time.time() - start, 1)
    print("\n" + json.dumps({"name": name, "task": task, **row}), flush=True)
    os._exit(0)  # saves the seconds that CUDA's teardown takes


@dataclass
class Process:
    """A task that runs in a process of its own."""

    task: str
    name: str
    cap: int = 0
    start: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        environ = {
            **os.environ,
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "HF_HUB_OFFLINE": "1",
            "TORCH_SYMBOLIZE_MODE": "dladdr",
            "OMP_NUM_THREADS": "2",
            **({"CUDA_VISIBLE_DEVICES": ""} if self.task == "predict" else {}),
        }
        self.stdout: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        self.stderr: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed with the process
        command = [sys.executable, __file__, "task", self.task, self.name, str(self.cap)]
        self.popen = subprocess.Popen(command, env=environ, stdout=self.stdout, stderr=self.stderr)

    def row(self) -> dict[str, Any] | None:
        """Return the row of a process that has ended or that ran for too long; None while it runs."""
        if self.popen.poll() is None:
            if time.time() - self.start < TASK_SECONDS:
                return None
            self.popen.kill()
            self.popen.wait()
        self.stdout.seek(0)
        lines = [line for line in self.stdout.read().splitlines() if line.startswith('{"name"')]
        if lines:
            row: dict[str, Any] = json.loads(lines[-1])
            return row
        self.stderr.seek(0)
        reason = f"exit status {self.popen.returncode}: {self.stderr.read()[-300:]}"
        return {"name": self.name, "task": self.task, "error": reason, "wall": round(time.time() - self.start, 1)}


class Results:
    """Rows of finished tasks in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.rows = {(row["name"], row["task"]): row for row in map(json.loads, lines)}

    def add(self, row: dict[str, Any]) -> None:
        """Append a row; the allocations of a history go to a compressed file beside the results."""
        if row["task"] == "history":
            with gzip.open(f"{self.path}.histories.gz", "at") as out:
                out.write(json.dumps(row) + "\n")
            row = {key: value for key, value in row.items() if key not in {"live", "around"}}
        self.rows[row["name"], row["task"]] = row
        with self.path.open("a") as out:
            out.write(json.dumps(row) + "\n")

    def cap(self, name: str) -> int:
        """Return the predicted high of `needed`; 0 if there is no prediction."""
        row = self.rows.get((name, "predict"), {})
        return int(row["expandable"]["needed_high"]) if "expandable" in row else 0

    def error(self, name: str) -> float | None:
        """Return the relative error of the predicted peak; None if a part is missing."""
        predicted, measured = self.rows.get((name, "predict"), {}), self.rows.get((name, "measure"), {})
        if "expandable" not in predicted or "allocated" not in measured:
            return None
        return float(predicted["expandable"]["allocated"] / measured["allocated"] - 1)

    def next_task(self, names: list[str], busy: set[tuple[str, str]], kind: str, worst: float | None) -> Any:
        """Return the next (task, name, cap) for the CPU or the GPU; None if nothing is left to start."""
        tasks = ("predict",) if kind == "cpu" else ("capped", "measure", "history")
        for task in tasks:
            for name in names:
                if (name, task) in self.rows or (name, task) in busy:
                    continue
                if task == "capped" and not self.cap(name):
                    continue
                if task == "history" and (worst is None or abs(self.error(name) or 0) <= worst):
                    continue
                return task, name, self.cap(name) if task == "capped" else 0
        return None


def run_all(results: Results, names: list[str], seconds: float, worst: float | None) -> None:
    """Run all tasks until the deadline."""
    running: list[Process] = []
    deadline = time.time() + seconds
    while True:
        busy = {(process.name, process.task) for process in running}
        for kind, limit in PARALLEL.items():
            count = sum((process.task == "predict") == (kind == "cpu") for process in running)
            while count < limit and time.time() < deadline - 20:
                task = results.next_task(names, busy, kind, worst)
                if task is None:
                    break
                running.append(Process(*task))
                busy.add((task[1], task[0]))
                count += 1
        if not running:
            return
        for process in list(running):
            row = process.row()
            if row is not None:
                running.remove(process)
                results.add(row)
        if time.time() > deadline:
            for process in running:
                process.popen.kill()
            return
        time.sleep(0.1)


def print_summary(results: Results) -> None:
    """Print a line for each model, worst first, and how many are within 1 and 3 %."""
    names = list(dict.fromkeys(name for name, _ in results.rows))
    errors = {name: error for name in names if (error := results.error(name)) is not None}
    for name in sorted(names, key=lambda name: -abs(errors.get(name, 9))):
        predicted, measured, ran = (results.rows.get((name, task), {}) for task in ("predict", "measure", "capped"))
        peak = f"{measured.get('allocated', 0) / MIB:9.1f} MiB"
        shown = f"{errors[name]:+8.2%}" if name in errors else "       ?"
        reasons = [f"{row['task']}: {row['error'][:110]}" for row in (predicted, measured, ran) if "error" in row]
        state = "ran" if ran.get("ran") else "NOT" if "error" in ran else "?"
        print(f"{name:28} {peak} {shown} {state:4}", "; ".join(reasons + predicted.get("assumptions", []))[:240])
    if errors:
        sizes = [abs(error) for error in errors.values()]
        ran_count = sum(bool(results.rows.get((name, "capped"), {}).get("ran")) for name in names)
        print(
            f"{len(names)} models, {len(errors)} compared: median error {statistics.median(sizes):.2%}, "
            f"{sum(size <= 0.01 for size in sizes)} within 1 %, {sum(size <= 0.03 for size in sizes)} within 3 %; "
            f"{ran_count} ran at the high of needed"
        )


def main() -> None:
    """Run the configurations and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=450)
    parser.add_argument("--histories", type=float, metavar="FRACTION")
    parser.add_argument("--history", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--predict-only", action="store_true", help="for a machine without a GPU")
    parser.add_argument("--parallel", type=int, help="predictions at a time")
    parser.add_argument("--summary", action="store_true", help="only print the summary of the results")
    options = parser.parse_args()
    from zoo import third_party

    results = Results(options.out)
    if options.parallel:
        PARALLEL["cpu"] = options.parallel
    if options.predict_only:
        PARALLEL["gpu"] = 0
    if options.history:
        for name in options.history:
            results.rows.pop((name, "history"), None)
            process = Process("history", name)
            while (row := process.row()) is None:
                time.sleep(0.1)
            results.add(row)
    elif not options.summary:
        run_all(results, options.names or list(third_party()), options.seconds, options.histories)
    print_summary(results)


if __name__ == "__main__":
    run_task(sys.argv[2], sys.argv[3], int(sys.argv[4])) if sys.argv[1:2] == ["task"] else main()
