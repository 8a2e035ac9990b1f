"""Measures on a GPU what smaller models save in training and cost in accuracy.

    python benchmarks/shrink.py runs --data bccd.yaml --out runs.jsonl [--seconds 500] [--epochs 100]
    python benchmarks/shrink.py steps --out steps.jsonl

`runs` trains detectors (n, s and the small backbones), prunes s to half its operations, and distills n from s, each
with three seeds, several side by side; finished ones are skipped when it is started again. `steps` measures the memory
of training steps alone, and the memory that 8-bit optimizer states save, beside what is predicted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

SEEDS = (0, 1, 2)
NETWORKS = ("s", "n", "mobilenet", "shufflenet", "depthwise")
DISTILL = ("response", "feature", "both")
EIGHT_BIT = ("vit-own-bf16", "vit-own-fp32", "gpt-accumulate", "bert-fp32", "gpt2-fp32")
PARALLEL_RUNS = 6
BATCH, SIZE = 64, 640
STEPS = 3


@dataclass(frozen=True)
class Run:
    """A training run of the benchmark.

    Attributes:
        kind: "train", "prune" or "distill".
        network: the network that is trained.
        seed: seed of the run.
        distill: the distillation loss.
    """

    kind: str
    network: str
    seed: int
    distill: str = ""

    @property
    def name(self) -> str:
        """Name of its folder."""
        return "-".join(str(part) for part in (self.kind, self.network, self.distill, self.seed) if part != "")

    @property
    def teacher(self) -> str | None:
        """Name of the run whose weights it starts from or learns from."""
        return None if self.kind == "train" else f"train-s-{self.seed}"


def all_runs() -> Iterator[Run]:
    """Yield the runs, those that others wait for first."""
    yield from (Run("train", network, seed) for network in NETWORKS[:2] for seed in SEEDS)
    yield from (Run("prune", "s", seed) for seed in SEEDS)
    yield from (Run("distill", "n", seed, loss) for loss in DISTILL for seed in SEEDS)
    yield from (Run("train", network, seed) for network in NETWORKS[2:] for seed in SEEDS)


class Quiet:
    """Progress callbacks that print nothing."""

    def log(self, message: str) -> None:
        print(message, file=sys.stderr)

    def on_progress(self, task: str, done: int, total: int | None) -> None:
        pass

    def on_plan(self, plan: Any) -> None:
        pass

    def on_step(self, stats: Any) -> None:
        pass

    def on_epoch_end(self, row: dict[str, Any]) -> None:
        print(row, file=sys.stderr)


def execute(run: Run, data: Path, folder: Path, epochs: int) -> dict[str, Any]:
    """Execute a run in this process, and return its row."""
    from oomph.detect import TrainConfig, train

    config = TrainConfig(
        data, folder / run.name, cfg=run.network, imgsz=SIZE, batch=BATCH, epochs=epochs, workers=3, seed=run.seed,
        val_interval=5,
    )  # fmt: skip
    start = time.time()
    teacher = folder / str(run.teacher) / "weights" / "best.pt"
    if run.kind == "prune":
        row = prune(replace(config, weights=teacher))
    else:
        if run.kind == "distill":
            config = replace(config, teacher=teacher, distill=run.distill)
        result = train(config, Quiet())
        best = result.best or {}
        row = {
            "scores": {name: best.get(name) for name in ("epoch", "map50", "map50_95", "images_per_second")},
            "predicted": result.predicted,
            "measured": result.measured,
            "retries": result.retries,
        }
    return {**asdict(run), **row, "seconds": round(time.time() - start, 1)}


def prune(config: Any) -> dict[str, Any]:
    """Prune a detector to half its operations, and return what `oomph shrink prune` reports."""
    from oomph.shrink import PruneRequest, prune_detector

    result = prune_detector(PruneRequest(config), Quiet())
    return {"variants": [asdict(variant) for variant in result.variants]}


def run_all(options: argparse.Namespace) -> None:
    """Execute all runs that aren't in the results, several at a time, as long as there is time."""
    folder = options.out.parent / "runs"
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {Run(*(row[name] for name in ("kind", "network", "seed", "distill"))).name for row in rows}
    queue = [run for run in all_runs() if run.name not in done]
    running: dict[Run, subprocess.Popen[bytes]] = {}
    started = time.time()
    while queue or running:
        late = time.time() - started > options.seconds
        ready = [] if late else [run for run in queue if run.teacher is None or run.teacher in done]
        for run in ready[: PARALLEL_RUNS - len(running)]:
            command = [sys.executable, __file__, "run", json.dumps(asdict(run)), str(options.data), str(folder)]
            log = (options.out.parent / f"{run.name}.log").open("w")
            running[run] = subprocess.Popen([*command, str(options.epochs)], stdout=subprocess.PIPE, stderr=log)
            queue.remove(run)
        for run in [run for run, process in running.items() if process.poll() is not None]:
            process = running.pop(run)
            text = process.stdout.read().decode().strip() if process.stdout else ""
            if process.returncode == 0:
                done.add(run.name)
                with options.out.open("a") as file:
                    file.write(text + "\n")
            print(f"{time.time() - started:.0f} s: {run.name}: {text or 'failed'}"[:300], flush=True)
        if late and not running:
            break
        time.sleep(0.5)


def measure_steps(options: argparse.Namespace) -> None:
    """Measure training steps of networks and of optimizers, each in a process of its own."""
    cases = [("network", name) for name in (*NETWORKS, "pruned s")]
    cases += [(optimizer, name) for name in EIGHT_BIT for optimizer in ("given", "8bit")]
    for kind, name in cases:
        command = [sys.executable, __file__, "step", kind, name]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        row = process.stdout.strip() or json.dumps({"kind": kind, "name": name, "error": process.stderr[-300:]})
        print(row, flush=True)
        with options.out.open("a") as file:
            file.write(row + "\n")


def measure_step(kind: str, name: str) -> dict[str, Any]:
    """Measure the memory of a step, and predict it."""
    import torch

    import oomph
    from oomph.monitor import TrainingStep

    job, settings = step_case(kind, name)
    predicted = oomph.predict(job, settings, torch.cuda.get_device_name())
    step = TrainingStep(job, settings, torch.device("cuda"))
    for _ in range(STEPS):
        step.run()
    torch.cuda.synchronize()
    return {
        "kind": kind,
        "name": name,
        "predicted": int(predicted.allocated.value),
        "measured": torch.cuda.max_memory_allocated(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def step_case(kind: str, name: str) -> tuple[Any, Any]:
    """Return Job and settings of a case."""
    import torch

    from oomph import Settings

    if kind != "network":
        from zoo import configs

        config = configs()[name]
        return config.job, replace(config.settings, optimizer=kind, allocator="default")
    from oomph.detect import HeadOutputs, detection_job, yolov5
    from oomph.shrink.pruning import count_operations, prune_network

    settings = Settings(
        batch=BATCH, size=SIZE, precision="amp-bf16", memory_format="channels_last", optimizer="fused",
        allocator="default",
    )  # fmt: skip
    if name != "pruned s":
        return detection_job(name, 3), settings
    images, network = (torch.zeros(1, 3, 64, 64),), yolov5("s", 3)
    limit = count_operations(HeadOutputs(network), images) / 2
    pruned = prune_network(network, lambda other: count_operations(HeadOutputs(other), images) <= limit)
    assert pruned is not None  # noqa: S101
    return detection_job("s", 3, widths=pruned.widths), settings


def main() -> None:
    """Run one of the two benchmarks, or one of its processes."""
    if sys.argv[1] == "run":
        run = Run(**json.loads(sys.argv[2]))
        print(json.dumps(execute(run, Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))))
    elif sys.argv[1] == "step":
        print(json.dumps(measure_step(sys.argv[2], sys.argv[3])))
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("what", choices=("runs", "steps"))
        parser.add_argument("--data", type=Path)
        parser.add_argument("--out", type=Path, required=True)
        parser.add_argument("--seconds", type=float, default=500)
        parser.add_argument("--epochs", type=int, default=100)
        options = parser.parse_args()
        run_all(options) if options.what == "runs" else measure_steps(options)


if __name__ == "__main__":
    main()
