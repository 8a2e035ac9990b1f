"""Compare predicted memory snapshots with recorded ones on a GPU, and measure what the guard's recording costs.

    PYTHONPATH=src:. python3 benchmarks/snapshots.py --out snapshots.jsonl

compare: four jobs with both allocators, each in a process of its own: three training steps are recorded by torch from
the building of the model on, and predicted; peak, allocations of each step, sizes at the peak and segments.
oom: a guarded step under a cap runs out of memory; torch's tools must read the snapshot that the guard wrote.
overhead: guarded steps with and without `snapshot=` and `nvtx=True`, as ratios of neighboring blocks.

Each result is one JSON line.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).parent))
from zoo import Config, configs, networks
from zoo.configs import cross_entropy, images, masks

import oomph
from oomph import detect
from oomph.machine import find_target
from oomph.monitor import TrainingStep
from oomph.prediction import memory_snapshot, predict_trace, trace_device
from oomph.trace import trace_step
from oomph.units import MIB

JOBS = ("convnext-own", "yolov5s", "gpt-bf16", "mlp-fp32")
ALLOCATORS = {"default": "", "expandable": "expandable_segments:True"}
STEPS = 3
BLOCKS, STEPS_OF_BLOCK, WARMUP_STEPS = 8, 20, 4
CAP_FRACTION = 0.6
MAX_SECONDS = 150  # of a part
TARGET = "H200"
_FREED, _MAPPED = "free_completed", ("segment_alloc", "segment_map")


def config_of(name: str) -> Config:
    """Return a configuration of the zoo, or that of YOLOv5s."""
    if name == "yolov5s":
        settings = oomph.Settings(batch=16, size=640, precision="amp-fp16")
        return Config(name, "yolov5", detect.detection_job("s"), settings)
    return configs()[name]


# What a snapshot says, recorded or predicted.


@dataclasses.dataclass(frozen=True)
class Summary:
    """A snapshot in numbers; block sizes are rounded as the allocator rounds requests."""

    peak: int
    peak_of_blocks: int
    sizes_at_peak: Counter[int]
    allocations: int
    peak_reserved: int
    segments: int
    segment_bytes: int

    @classmethod
    def of(cls, snapshot: dict[str, Any]) -> Summary:
        """Summarize the events of the first GPU, and the segments after them."""
        live: dict[int, int] = {}
        total = peak = blocks = peak_of_blocks = reserved = peak_reserved = allocations = 0
        at_peak: dict[int, int] = {}
        for entry in snapshot["device_traces"][0]:
            action, size = entry["action"], entry.get("size", 0)
            if action == "alloc":
                live[entry["addr"]] = size
                allocations, total, blocks = allocations + 1, total + size, blocks + rounded(size)
                peak = max(peak, total)
                if blocks > peak_of_blocks:
                    peak_of_blocks, at_peak = blocks, dict(live)
            elif action == _FREED and entry["addr"] in live:
                size = live.pop(entry["addr"])
                total, blocks = total - size, blocks - rounded(size)
            elif action.startswith("segment_"):
                reserved += size if action in _MAPPED else -size
                peak_reserved = max(peak_reserved, reserved)
        return cls(
            peak=peak,
            peak_of_blocks=peak_of_blocks,
            sizes_at_peak=Counter(map(rounded, at_peak.values())),
            allocations=allocations,
            peak_reserved=peak_reserved,
            segments=len(snapshot["segments"]),
            segment_bytes=sum(segment["total_size"] for segment in snapshot["segments"]),
        )


def rounded(size: int) -> int:
    """Return a requested size as the allocator rounds it."""
    return max(-(-size // 512) * 512, 512)


def shared_bytes(sizes: Counter[int], others: Counter[int]) -> int:
    """Return the bytes of the allocations that are in both."""
    return sum(size * count for size, count in (sizes & others).items())


def differing_fields(recorded: dict[str, Any], predicted: dict[str, Any]) -> dict[str, list[str]]:
    """Return the fields that only one of both snapshots has, "-" for those that are not predicted."""
    fields, others = fields_of(recorded), fields_of(predicted)
    return {
        name: [
            *(f"-{field}" for field in sorted(fields[name] - others[name])),
            *(f"+{field}" for field in sorted(others[name] - fields[name])),
        ]
        for name in fields
    }


def fields_of(snapshot: dict[str, Any]) -> dict[str, set[str]]:
    """Return the fields of each part of a snapshot."""
    segment = snapshot["segments"][0]
    entry = next(entry for entry in snapshot["device_traces"][0] if entry["action"] == "alloc")
    return {"snapshot": set(snapshot), "segment": set(segment), "block": set(segment["blocks"][0]), "entry": set(entry)}


def compare(recorded: dict[str, Any], predicted: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of both snapshots side by side, each as [recorded, predicted]."""
    real, guess = Summary.of(recorded), Summary.of(predicted)
    pairs = {
        field.name: [getattr(real, field.name), getattr(guess, field.name)]
        for field in dataclasses.fields(Summary)
        if field.name != "sizes_at_peak"
    }
    shared = shared_bytes(real.sizes_at_peak, guess.sizes_at_peak)
    return {
        **pairs,
        "shared_at_peak": shared / max(real.peak_of_blocks, 1),
        "only_recorded": largest(real.sizes_at_peak - guess.sizes_at_peak),
        "only_predicted": largest(guess.sizes_at_peak - real.sizes_at_peak),
        "fields": differing_fields(recorded, predicted),
    }


def largest(sizes: Counter[int]) -> list[list[int]]:
    """Return the five sizes with the most bytes, with their counts."""
    return [[size, count] for size, count in sorted(sizes.items(), key=lambda item: -item[0] * item[1])[:5]]


# Recorded and predicted steps, in a process of their own.


def record_steps(config: Config) -> tuple[dict[str, Any], dict[str, Any]]:
    """Record training steps on the GPU; return the snapshot and torch's statistics."""
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python")
    step = TrainingStep(config.job, config.settings, torch.device("cuda"))
    counts = [allocation_count()]
    for _ in range(STEPS):
        step.run()
        counts.append(allocation_count())
    torch.cuda.synchronize()
    statistic = {
        "allocated": torch.cuda.max_memory_allocated(),
        "reserved": torch.cuda.max_memory_reserved(),
        "allocations_of_steps": [after - before for before, after in itertools.pairwise(counts)],
    }
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(None)
    return snapshot, statistic


def allocation_count() -> int:
    """Return how many allocations there were."""
    return int(torch.cuda.memory_stats()["allocation.all.allocated"])


def allocations_of_steps(snapshot: dict[str, Any]) -> list[int]:
    """Return how many allocations each predicted step makes."""
    steps: Counter[int] = Counter()
    for entry in snapshot["device_traces"][0]:
        if entry["action"] == "alloc":
            frame = next(frame for frame in entry["frames"] if frame["filename"] == "step")
            steps[frame["line"]] += frame["name"] != "build"
    return [steps[step + 1] for step in range(STEPS)]


def compare_job(name: str, allocator: str) -> dict[str, Any]:
    """Record and predict the steps of a configuration."""
    config = config_of(name)
    torch.manual_seed(0)
    recorded, statistic = record_steps(config)
    settings, target = dataclasses.replace(config.settings, allocator=allocator), find_target(TARGET)
    trace = trace_step(config.job, settings, trace_device(target), stacks=True)
    prediction, predicted = predict_trace(trace, settings, target), memory_snapshot(trace, settings, target)
    accepted = read_by_torch(predicted)
    summary = compare(recorded, predicted)
    return {
        "name": name,
        "allocator": allocator,
        "allocated": [statistic["allocated"], int(prediction.allocated.value)],
        "reserved": [statistic["reserved"], int(prediction.reserved.value)],
        "allocations_of_steps": [statistic["allocations_of_steps"], allocations_of_steps(predicted)],
        "events_match_prediction": summary["peak"][1] == prediction.allocated.value,
        "accepted_by_torch": accepted,
        **summary,
    }


def read_by_torch(snapshot: dict[str, Any]) -> dict[str, int]:
    """Let torch's tools read a snapshot; return the lengths of what they made of it."""
    from torch.cuda import _memory_viz as tools

    return {name: len(getattr(tools, name)(snapshot)) for name in ("segsum", "trace_plot", "segment_plot", "trace")}


# An out-of-memory error of a guarded step.


def unet() -> nn.Module:
    """Build a network without BatchNorm, so that it can be split exactly."""
    torch.manual_seed(0)
    return networks.UNet(norm="group").cuda()


def run_out_of_memory() -> dict[str, Any]:
    """Run a guarded step under a cap, and check what it left."""
    batch = masks(16, 256)
    model = unet()
    plain = oomph.guard(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.01), loss=cross_entropy)
    for _ in range(2):
        plain.step(batch)
    need = torch.cuda.max_memory_reserved()
    del plain, model
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(CAP_FRACTION * need / torch.cuda.mem_get_info()[1])
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), unet()
        with oomph.Recorder(folder / "run.jsonl") as recorder:
            guard = oomph.guard(
                model=model,
                optimizer=torch.optim.SGD(model.parameters(), 0.01),
                loss=cross_entropy,
                snapshot=folder / "snapshots",
                nvtx=True,
                recorder=recorder,
            )
            started_at = time.perf_counter()
            reports = [guard.step(batch) for _ in range(3)]
            seconds = time.perf_counter() - started_at
            guard.close()
        files = sorted((folder / "snapshots").iterdir())
        named = [
            event.get("snapshot") for event in oomph.Record.load(folder / "run.jsonl").events if event["event"] == "oom"
        ]
        snapshots = [pickle.loads(path.read_bytes()) for path in files]  # noqa: S301  written above
        sizes = [path.stat().st_size for path in files]
    return {
        "name": "oom",
        "retries": [report.retries for report in reports],
        "micro_batches": [report.micro_batches for report in reports],
        "seconds": seconds,
        "files": [path.name for path in files],
        "megabytes": [round(size / 1e6, 2) for size in sizes],
        "named_in_record": sorted(filter(None, named)) == [str(path) for path in files],
        "oom_entries": [count_actions(snapshot, "oom") for snapshot in snapshots],
        "live_megabytes": [live_bytes(snapshot) // MIB for snapshot in snapshots],
        "cap_megabytes": int(CAP_FRACTION * need) // MIB,
        "has_lines_of_the_network": [has_lines(snapshot, "networks.py") for snapshot in snapshots],
        "accepted_by_torch": [read_by_torch(snapshot) for snapshot in snapshots],
        "recording_ended": not torch._C._cuda_isHistoryEnabled(),
        "recording_of_the_user_stays": user_recording_stays(model),
    }


def count_actions(snapshot: dict[str, Any], action: str) -> int:
    """Return how many entries have an action."""
    return sum(entry["action"] == action for trace in snapshot["device_traces"] for entry in trace)


def live_bytes(snapshot: dict[str, Any]) -> int:
    """Return the allocated bytes when the snapshot was taken."""
    return sum(int(segment["allocated_size"]) for segment in snapshot["segments"])


def has_lines(snapshot: dict[str, Any], file: str) -> bool:
    """Return True if allocations were made by lines of a file."""
    frames = (frame for entry in snapshot["device_traces"][0] for frame in entry.get("frames", ()))
    return any(frame["filename"].endswith(file) for frame in frames)


def user_recording_stays(model: nn.Module) -> bool:
    """Return True if a guard leaves a recording alone that was there before it."""
    torch.cuda.memory._record_memory_history(max_entries=1000)
    with tempfile.TemporaryDirectory() as folder:
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        oomph.guard(model=model, optimizer=optimizer, loss=cross_entropy, snapshot=folder).close()
    stays = bool(torch._C._cuda_isHistoryEnabled())
    torch.cuda.memory._record_memory_history(None)
    return stays


# What recording and marking cost.


def overhead(samples: int, size: int) -> dict[str, Any]:
    """Time guarded steps with and without recording and ranges, in blocks that take turns."""
    torch.manual_seed(0)
    model = networks.ConvNext().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    batch = tuple(tensor.cuda() for tensor in images(samples, size))
    with tempfile.TemporaryDirectory() as folder:
        variants: dict[str, dict[str, Any]] = {"plain": {}, "snapshot": {"snapshot": folder}, "nvtx": {"nvtx": True}}

        def block(options: dict[str, Any]) -> float:
            guard = oomph.guard(model=model, optimizer=optimizer, loss=cross_entropy, precision="amp-bf16", **options)
            try:
                return seconds_per_step(lambda: guard.step(batch))
            finally:
                guard.close()

        block({})
        rows = [{name: block(options) for name, options in variants.items()} for _ in range(BLOCKS)]
    return {
        "name": "overhead",
        "samples": samples,
        "size": size,
        "plain_ms": 1e3 * statistics.median(row["plain"] for row in rows),
        **{f"{name}_ratio": ratios(rows, name) for name in ("snapshot", "nvtx")},
    }


def ratios(rows: list[dict[str, float]], name: str) -> dict[str, float]:
    """Return median, smallest and largest ratio of a variant to the plain steps beside it."""
    values = [row[name] / row["plain"] for row in rows]
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def seconds_per_step(step: Callable[[], object]) -> float:
    """Time a block of steps after a few others."""
    for _ in range(WARMUP_STEPS):
        step()
    torch.cuda.synchronize()
    started_at = time.perf_counter()
    for _ in range(STEPS_OF_BLOCK):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - started_at) / STEPS_OF_BLOCK


# Processes.


def machine() -> dict[str, str]:
    """Return what the numbers were measured with."""
    return {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cudnn": str(torch.backends.cudnn.version()),
        "date": time.strftime("%Y-%m-%d"),
    }


def run_part(part: list[str]) -> dict[str, Any]:
    """Run one part in this process; a failure is a result too."""
    try:
        if part[0] == "compare":
            return compare_job(part[1], part[2])
        return run_out_of_memory() if part[0] == "oom" else overhead(int(part[1]), int(part[2]))
    except Exception as error:  # noqa: BLE001  the other parts go on
        return {"name": " ".join(part), "error": f"{type(error).__name__}: {error}"[:500]}


def start(part: list[str]) -> subprocess.Popen[str]:
    """Start a part in a new process, with the allocator that it names."""
    options = ALLOCATORS[part[2]] if part[0] == "compare" else ""
    environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": options}
    command = [sys.executable, __file__, "--part", " ".join(part)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def result_of(part: list[str], process: subprocess.Popen[str]) -> str:
    """Wait for a part and return its line."""
    try:
        output, _ = process.communicate(timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    failure = json.dumps({"name": " ".join(part), "error": f"no result, exit code {process.returncode}"})
    return next((line for line in output.splitlines() if line.startswith("{")), failure)


def main() -> None:
    """Run all parts: the comparisons side by side, then those that measure time alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", help="run one part in this process and print its line")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "This benchmark needs a GPU.\n")
    if options.part:
        print(json.dumps({**run_part(options.part.split()), **machine()}), flush=True)
        return
    comparisons = [["compare", name, allocator] for name in JOBS for allocator in ALLOCATORS]
    lines: list[str] = []
    for group in (comparisons, [["oom"]], [["overhead", "2", "64"]], [["overhead", "32", "224"]]):
        for part, process in [(part, start(part)) for part in group]:
            lines.append(result_of(part, process))
            print(lines[-1], flush=True)
    if options.out:
        options.out.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
