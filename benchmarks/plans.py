"""Plans for several jobs under caps, and runs them on this machine's GPU beside what people do today.

    python benchmarks/plans.py --plan plans.jsonl [name …]          anywhere: plans under caps of 4, 8, 16 and 40 GiB
    python benchmarks/plans.py --run plans.jsonl --out runs.jsonl   on a GPU: a hundred steps of each plan
    python benchmarks/plans.py --compare plans.jsonl --out compared.jsonl [--rounds 3] [name …]
    python benchmarks/plans.py --largest plans.jsonl --out largest.jsonl [name …]

A cap is what torch's allocator may reserve. In a comparison every strategy trains the same batch, in turns in one
process: the plan; halving in fp32 and in mixed precision until it fits, as accelerate, composer and Lightning do;
micro-batches from a linear fit to 60 and 80 % of the memory, as YOLOv5 and Ultralytics do; every block checkpointed;
the largest micro-batch with channels_last and a fused optimizer.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

from oomph import document  # noqa: E402
from oomph.errors import CannotFit  # noqa: E402
from oomph.machine import find_target  # noqa: E402
from oomph.planner import JobPredictor, PlanRequest, plan_fastest, plan_largest_batch  # noqa: E402
from oomph.settings import Settings  # noqa: E402

GIB = 1024**3
CAPS = (4, 8, 16, 40)
# Job of the zoo, or a built-in name: batch and size.
JOBS = {
    "yolov5s": (64, 640),
    "retinanet-fp32": (16, 512),
    "resnet50-fp32": (256, 224),
    "timm-vit-fp32": (512, 224),
    "gpt2-fp32": (32, 512),
    "unet-fp32": (64, 320),
    "convnext-fp16": (256, 224),
    "bert-fp32": (256, 128),
    "deeplab-fp16": (64, 320),
}
LARGEST_CAPS = (4, 16)
_SEARCHES = 3  # side by side: a search asks only what fits under its cap
WARMUP_STEPS, TIMED_STEPS, PLANNED_STEPS = 3, 8, 100


def find_job(name: str) -> Any:
    """Return a job."""
    if name.startswith("yolov5"):
        from oomph.detect import detection_job

        return detection_job(name.removeprefix("yolov5"))
    from zoo import configs

    return configs()[name].job


def requested(name: str) -> Settings:
    """Return what people start with."""
    batch, size = JOBS[name]
    return Settings(batch=batch, size=size, allocator="default")


def make_plans(name: str) -> Iterator[dict[str, Any]]:
    """Plan a job under every cap, the fastest settings and the largest batch."""
    target = find_target("H200")
    predictor = JobPredictor(find_job(name), target)
    for cap in CAPS:
        started_at = time.process_time()
        request = PlanRequest(requested(name), target, cap * GIB + target.outside[-1], ("precision",))
        row: dict[str, Any] = {"job": name, "cap": cap, "goal": "fastest"}
        try:
            plan = plan_fastest(request, predictor)
        except CannotFit as error:
            yield {**row, "error": str(error)}
            continue
        need = plan.planned_need
        yield {
            **row,
            "settings": document.encode(plan.settings),
            "full_speed": document.encode(need.full_speed),
            "allocated": document.encode(need.allocated),
            "seconds": need.seconds.value,
            "cpu_seconds": time.process_time() - started_at,
        }
    for cap in LARGEST_CAPS:
        started_at = time.process_time()
        request = PlanRequest(replace(requested(name), precision="amp-bf16"), target, cap * GIB + target.outside[-1])
        row = {"job": name, "cap": cap, "goal": "largest-batch"}
        try:
            plan = plan_largest_batch(request, predictor)
        except CannotFit as error:
            yield {**row, "error": str(error)}
            continue
        seconds = time.process_time() - started_at
        yield {**row, "settings": document.encode(plan.settings), "cpu_seconds": seconds}


def settings_of(row: dict[str, Any]) -> Settings:
    """Return the settings of a planned row."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row["settings"].items()
    }
    return Settings(**values)


def set_cap(gib: float) -> None:
    """Cap torch's allocator."""
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(gib * GIB / total, 1.0))


def cached(job: Any, settings: Settings) -> Any:
    """Return the Job with its batches kept in host memory, so that creating data is not timed."""
    from torch.utils._pytree import tree_map

    @functools.cache
    def batch(samples: int, size: Any) -> Any:
        import torch

        return tree_map(
            lambda leaf: leaf.pin_memory() if isinstance(leaf, torch.Tensor) else leaf, job.batch(samples, size)
        )

    del settings
    return dataclasses.replace(job, batch=batch)


def run_steps(job: Any, settings: Settings, cap: float, steps: int) -> dict[str, Any]:
    """Run steps under a cap; return the median time, or that memory ran out."""
    import torch

    from oomph.monitor import TrainingStep

    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    set_cap(cap)
    step = None
    try:
        step = TrainingStep(job, settings, torch.device("cuda"))
        seconds = step.time(steps)
        return {
            "ok": True,
            "seconds": statistics.median(seconds[min(WARMUP_STEPS, steps - 1) :]),
            "allocated": torch.cuda.max_memory_allocated(),
            "reserved": torch.cuda.max_memory_reserved(),
            "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        }
    except torch.cuda.OutOfMemoryError:
        return {"ok": False}
    finally:
        del step
        set_cap(1e6)


def fits(job: Any, settings: Settings, cap: float) -> bool:
    """Return True if two steps run under a cap."""
    return bool(run_steps(job, settings, cap, 2)["ok"])


def halved(job: Any, settings: Settings, cap: float) -> Settings | None:
    """Halve the micro-batch until it fits."""
    size = settings.batch
    while size >= 1:
        candidate = replace(settings, micro_batch=size if size < settings.batch else None)
        if fits(job, candidate, cap):
            return candidate
        size //= 2
    return None


def largest(job: Any, settings: Settings, cap: float) -> Settings | None:
    """Return the largest micro-batch that fits, by bisection with real runs."""
    if fits(job, settings, cap):
        return settings
    low, high = 0, settings.batch
    while high - low > max(high // 16, 1):
        middle = (low + high) // 2
        if fits(job, replace(settings, micro_batch=middle), cap):
            low = middle
        else:
            high = middle
    return replace(settings, micro_batch=low) if low else None


def linear_fit(fraction: float) -> Callable[[Any, Settings, float], Settings | None]:
    """Return the strategy that measures small batches and fits a line to a fraction of the memory."""

    def strategy(job: Any, settings: Settings, cap: float) -> Settings | None:
        points = []
        for size in (1, 2, 4, 8, 16):
            row = run_steps(job, replace(settings, batch=size, micro_batch=None), cap, 2)
            if row["ok"]:
                points.append((size, row["reserved"]))
        if len(points) < 2:
            return None
        slope, start = statistics.linear_regression(*zip(*points, strict=True))
        size = min(max(int((fraction * cap * GIB - start) / slope), 1), settings.batch)
        candidate = replace(settings, micro_batch=size if size < settings.batch else None)
        return candidate if fits(job, candidate, cap) else None

    return strategy


def strategies(name: str) -> dict[str, tuple[Settings, Callable[[Any, Settings, float], Settings | None]]]:
    """Return what people do: the settings that they start with, and how they make them fit."""
    batch, size = JOBS[name]
    fp32 = Settings(batch=batch, size=size)
    mixed = replace(fp32, precision="amp-bf16")
    tuned = replace(mixed, memory_format="channels_last", optimizer="fused")
    return {
        "fp32, halved": (fp32, halved),
        "mixed, halved": (mixed, halved),
        "mixed, fit to 60 %": (mixed, linear_fit(0.6)),
        "mixed, fit to 80 %": (mixed, linear_fit(0.8)),
        "tuned, largest": (tuned, largest),
        "tuned, all blocks": (replace(tuned, checkpointing="blocks"), largest),
    }


def search(name: str, label: str, cap: float) -> Settings | None:
    """Return what a strategy settles on."""
    start, strategy = strategies(name)[label]
    return strategy(cached(find_job(name), start), start, cap)


def search_all(name: str, cap: float) -> dict[str, Settings | None]:
    """Return what each strategy settles on, each in its own process: out-of-memory errors leave memory behind."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_SEARCHES, mp_context=spawn, max_tasks_per_child=1) as pool:
        found = {label: pool.submit(search, name, label, cap) for label in strategies(name)}
        return {label: future.result() for label, future in found.items()}


def compare(name: str, rows: list[dict[str, Any]], rounds: int) -> Iterator[dict[str, Any]]:
    """Time the plans of a job beside what people do, under every cap, in turns."""
    job = cached(find_job(name), requested(name))
    for row in rows:
        cap = row["cap"]
        found: dict[str, Settings | None] = {"plan": settings_of(row), **search_all(name, cap)}
        unlimited = replace(found["plan"] or requested(name), micro_batch=None, checkpointing="none")
        times: dict[str, list[float]] = {label: [] for label in (*found, "no cap")}
        for _ in range(rounds):
            for label, settings in (*found.items(), ("no cap", unlimited)):
                if settings is not None:
                    result = run_steps(job, settings, 1e6 if label == "no cap" else cap, WARMUP_STEPS + TIMED_STEPS)
                    times[label].append(result["seconds"] if result["ok"] else float("inf"))
        for label, values in times.items():
            settings = unlimited if label == "no cap" else found[label]
            speed = JOBS[name][0] / statistics.median(values) if values else 0.0
            yield {
                "job": name,
                "cap": cap,
                "strategy": label,
                "samples_per_second": speed,
                "seconds": values,
                "micro_batch": None if settings is None else settings.micro_batch or settings.batch,
                "recomputed": None if settings is None else document.encode(settings.checkpointing),
            }


def run_plans(name: str, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Run a hundred steps of each plan under its cap."""
    job = cached(find_job(name), requested(name))
    for row in rows:
        result = run_steps(job, settings_of(row), row["cap"], PLANNED_STEPS)
        yield {**row, "measured": result}


def check_largest(name: str, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Compare planned largest batches with the true ones, by bisection with real runs."""
    job = find_job(name)
    for row in rows:
        settings = settings_of(row)
        planned = settings.batch

        def ok(batch: int, settings: Settings = settings, cap: float = row["cap"]) -> bool:
            return fits(job, replace(settings, batch=batch), cap)

        low, high = (planned, 2 * planned) if ok(planned) else (0, planned)
        step = max(planned // 16, 1)
        while low and low == planned and ok(low + step) and low + step < high:
            low += step
        high = low + step if low else planned
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ok(middle) else (low, middle)
        yield {"job": name, "cap": row["cap"], "planned": planned, "true": low}


def main() -> None:
    """Plan or run."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", choices=[*JOBS, []])
    arguments.add_argument("--plan", type=Path)
    arguments.add_argument("--run", type=Path)
    arguments.add_argument("--compare", type=Path)
    arguments.add_argument("--largest", type=Path)
    arguments.add_argument("--out", type=Path)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    plans = options.run or options.compare or options.largest
    rows = [json.loads(line) for line in plans.read_text().splitlines()] if plans else []
    goal = "largest-batch" if options.largest else "fastest"
    with (options.out or options.plan).open("a") as out:
        for name in options.names or JOBS:
            of_job = [row for row in rows if row["job"] == name and row["goal"] == goal and "settings" in row]
            results = (
                make_plans(name)
                if options.plan
                else run_plans(name, of_job)
                if options.run
                else compare(name, of_job, options.rounds)
                if options.compare
                else check_largest(name, of_job)
            )
            for result in results:
                print(json.dumps(result), file=out, flush=True)
                print(result, flush=True)


if __name__ == "__main__":
    main()
