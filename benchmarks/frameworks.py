"""Trains with transformers and Ultralytics in half of the GPU memory that they need, with and without the guard.

    python benchmarks/frameworks.py --bccd FOLDER [--packages FOLDER] [--out rows.jsonl] [--quick] [bert] [yolo]

First, a plain run without a cap measures the peak of the allocated memory. Then each variant runs with the allocator
capped at half of it: the framework alone, with oomph's integration, and with the framework's own answer where it has
one. Each run is a process of its own, and nothing is downloaded. `--packages` is a folder with packages that this
Python lacks; what is installed comes first.

On a CPU (`--device cpu`) the cap is imitated: more than half of the batch raises torch's out-of-memory error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

GIB = 1024**3
RUN_SECONDS = 120
# The closed port makes a download fail at once; without it, an unreachable network is waited for.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "YOLO_OFFLINE": "true",
    "YOLO_AUTOINSTALL": "false",
    "http_proxy": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
}
VARIANTS = {"bert": ("plain", "guarded", "auto_find_batch_size"), "yolo": ("plain", "guarded")}
TITLES = {"bert": "BERT in transformers' Trainer", "yolo": "YOLOv8n in Ultralytics"}
WARMUP_BATCHES = {"bert": 5, "yolo": 2}  # that samples/s leaves out, as the first ones include the guard's check


@dataclass(frozen=True)
class Run:
    """A training run.

    Attributes:
        task, variant: what is trained, and how.
        cap: bytes of the allocator; 0 for no cap.
        folder: where it may write; the images are there, too.
        packages: a folder for the end of `sys.path`.
        device: "cuda" or "cpu".
        quick: with a small network and few samples.
    """

    task: str
    variant: str
    cap: int
    folder: str
    packages: str
    device: str
    quick: bool

    @property
    def batch(self) -> int:
        """The effective batch that is asked for."""
        return 8 if self.quick else 64

    @property
    def record(self) -> str:
        """The path of the guard's Record."""
        return f"{self.folder}/{self.task}.jsonl"


@dataclass
class Progress:
    """What a run did so far, also if it dies.

    Attributes:
        batch: samples per update.
        updates: optimizer steps of the model that results.
        losses: of each update (transformers) or epoch (Ultralytics).
        batches: seconds and samples of each batch, without the wait for the loader.
        start: when training began, after the imports.
        details: further columns.
    """

    batch: int = 0
    updates: int = 0
    losses: list[float] = field(default_factory=list)
    batches: list[tuple[float, int]] = field(default_factory=list)
    start: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)
    _batch_start: float = 0.0

    def begin_batch(self) -> None:
        """Start the clock."""
        self._batch_start = clock()

    def end_batch(self, samples: int) -> None:
        """Stop the clock."""
        self.batches.append((clock() - self._batch_start, samples))


def clock() -> float:
    """Return the time at which the GPU has finished."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def limit_samples(model: Any, samples: int) -> None:
    """Imitate a cap: raise an out-of-memory error in the first layer if it gets more samples."""
    import torch

    def check(_: Any, args: tuple[Any, ...]) -> None:
        if len(args[0]) > samples:
            raise torch.OutOfMemoryError("CUDA out of memory. (imitated)")

    first = next(module for module in model.modules() if list(module.parameters(recurse=False)))
    first.register_forward_pre_hook(check)


def sentences(count: int, length: int, tokens: int) -> list[dict[str, Any]]:
    """Random tokens, few of them frequent, of which 15 % are masked; the number of labels differs between sentences."""
    import torch

    generator = torch.Generator().manual_seed(0)
    frequency = 1 / torch.arange(1, tokens - 1)
    rows = []
    for _ in range(count):
        ids = 2 + torch.multinomial(frequency, length, replacement=True, generator=generator) % (tokens - 2)
        masked = torch.rand(length, generator=generator) < 0.15
        rows.append({"input_ids": ids.masked_fill(masked, 1), "labels": ids.masked_fill(~masked, -100)})
    return rows


def train_bert(run: Run, progress: Progress) -> None:
    """Train a masked language model with transformers."""
    import transformers

    from oomph.integrations.transformers import GuardedTrainer

    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2}
    config = transformers.BertConfig(**(sizes | {"vocab_size": 500} if run.quick else {}))
    data = sentences(20 * run.batch, 32 if run.quick else 512, config.vocab_size)
    arguments = transformers.TrainingArguments(
        output_dir=f"{run.folder}/bert",
        per_device_train_batch_size=run.batch,
        num_train_epochs=1,
        bf16=True,
        optim="adamw_torch",
        learning_rate=1e-4,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=run.device == "cpu",
        auto_find_batch_size=run.variant == "auto_find_batch_size",
    )

    class Watch(transformers.TrainerCallback):  # type: ignore[misc]  # transformers has no types
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            del args, control, kwargs
            progress.batch = state.train_batch_size
            progress.details["starts"] = progress.details.get("starts", 0) + 1
            progress.losses.clear()
            progress.batches.clear()

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            del args, state, control, kwargs
            progress.begin_batch()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            del args, control, kwargs
            progress.updates = state.global_step
            progress.end_batch(min(progress.batch, len(data) - progress.batch * (state.global_step - 1)))

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            del args, state, control
            progress.losses += [round(kwargs["logs"]["loss"], 4)] if "loss" in kwargs["logs"] else []

    transformers.set_seed(0)
    model = transformers.BertForMaskedLM(config)
    progress.details["parameters"] = sum(param.numel() for param in model.parameters())
    if run.cap and run.device == "cpu":
        limit_samples(model, run.batch // 2)
    kinds: dict[str, Callable[..., Any]] = {"guarded": lambda **kwargs: GuardedTrainer(record=run.record, **kwargs)}
    build = kinds.get(run.variant, transformers.Trainer)
    trainer = build(model=model, args=arguments, train_dataset=data, callbacks=[Watch()])
    progress.start = time.perf_counter()
    trainer.train()


def train_yolo(run: Run, progress: Progress) -> None:
    """Train a detector with Ultralytics."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from ultralytics import YOLO

    from oomph.integrations.ultralytics import add_guard

    def on_train_start(trainer: Any) -> None:
        progress.batch, progress.details["amp"] = trainer.batch_size, bool(trainer.amp)
        if run.cap and run.device == "cpu":
            limit_samples(trainer.model, run.batch // 2)

    remaining = 0

    def on_train_epoch_start(trainer: Any) -> None:  # it runs again if the batch is halved
        nonlocal remaining
        remaining = len(trainer.train_loader.dataset)

    def on_train_batch_end(trainer: Any) -> None:
        nonlocal remaining
        progress.batch = trainer.batch_size
        progress.end_batch(min(remaining, trainer.batch_size))
        remaining -= trainer.batch_size

    def on_train_epoch_end(trainer: Any) -> None:
        progress.losses.append(sum(float(value) for value in trainer.tloss.values()))

    def count_update(*_: Any) -> None:
        progress.updates += 1

    register_optimizer_step_post_hook(count_update)
    model = YOLO("yolov8n.yaml")
    callbacks = [on_train_start, on_train_epoch_start, on_train_batch_end, on_train_epoch_end]
    for callback in callbacks:
        model.add_callback(callback.__name__, callback)
    model.add_callback("on_train_batch_start", lambda _: progress.begin_batch())
    if run.variant == "guarded":
        add_guard(model, record=run.record)
    sizes = {"imgsz": 64, "workers": 0, "epochs": 1} if run.quick else {"imgsz": 640, "workers": 4, "epochs": 2}
    progress.start = time.perf_counter()
    metrics = model.train(
        data=f"{run.folder}/bccd.yaml",
        batch=run.batch,
        device="cpu" if run.device == "cpu" else 0,
        amp=True,
        seed=0,
        plots=False,
        project=f"{run.folder}/yolo",
        name=f"{run.variant}-{run.cap}",
        **sizes,
    )
    progress.details["map50"] = metrics.box.map50


def run_here(run: Run) -> dict[str, Any]:
    """Train in this process and return the row."""
    sys.path.append(run.packages)
    import measure
    import torch
    from zoo.torchvision_shim import import_detection

    import_detection()  # a CPU build of torch lacks operators that torchvision needs
    if run.device == "cuda" and run.cap:
        measure.set_cap(run.cap)
    progress, error = Progress(), ""
    try:
        (train_bert if run.task == "bert" else train_yolo)(run, progress)
    except Exception as failure:  # noqa: BLE001  a failure is a row too
        error = f"{type(failure).__name__}: {' '.join(str(failure).split())}"[:300]
    timed = progress.batches[WARMUP_BATCHES[run.task] :]
    stats = torch.cuda.memory_stats() if run.device == "cuda" else {}
    last = progress.losses[-5:] if run.task == "bert" else progress.losses[-1:]
    return {
        "finished": not error,
        "error": error,
        "batch": progress.batch,
        "updates": progress.updates,
        "samples_per_second": sum(count for _, count in timed) / sum(second for second, _ in timed) if timed else None,
        "seconds": time.perf_counter() - progress.start if progress.start else None,
        "peak": stats.get("allocated_bytes.all.peak", 0),
        "reserved": stats.get("reserved_bytes.all.peak", 0),
        "alloc_retries": stats.get("num_alloc_retries", 0),
        "loss": sum(last) / len(last) if last else None,
        "losses": progress.losses,
        **progress.details,
        **(read_record(run.record) if run.variant == "guarded" else {}),
    }


def read_record(path: str) -> dict[str, Any]:
    """Return the largest number of micro-batches and the number of retries, from the guard's Record."""
    import oomph

    if not Path(path).exists():
        return {}
    steps = oomph.Record.load(path).steps
    counts = [step["micro_batches"] for step in steps]  # the last batch of an epoch is smaller
    return {"micro_batches": max(counts, default=None), "retries": sum(step.get("retries", 0) for step in steps)}


def run_process(run: Run, deadline: float) -> dict[str, Any]:
    """Train in a new process and return the row."""
    environ = {**os.environ, **OFFLINE, "YOLO_CONFIG_DIR": run.folder}
    command = [sys.executable, __file__, "one", json.dumps(asdict(run))]
    log = Path(run.folder) / "log.txt"
    seconds = max(min(RUN_SECONDS, deadline - time.time()), 1)
    with log.open("w") as out:
        try:
            subprocess.run(command, env=environ, stdout=out, stderr=subprocess.STDOUT, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            out.write(f"\nstopped after {seconds:.0f} s")
    lines = log.read_text(errors="replace").splitlines()
    rows = [json.loads(line) for line in lines if line.startswith('{"finished"')]
    row = rows[-1] if rows else {"finished": False, "error": "no row: " + " / ".join(lines[-8:])}
    return {"task": run.task, "variant": run.variant, "cap": run.cap, **row}


def table(task: str, rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    extra = ["mAP50"] if task == "yolo" else []
    columns = ["cap", "finished", "batch", "micro-batches", "updates", "samples/s", "seconds", "peak GiB", "loss"]
    yield "| " + " | ".join([TITLES[task], *columns, *extra]) + " |"
    yield "|---" * (1 + len(columns) + len(extra)) + "|"
    for row in rows:
        cells = [
            row["variant"],
            cap_text(row["cap"]),
            "yes" if row["finished"] else f"no: {row['error'].split(' (', 1)[0].split('. ', 1)[0][:80]}",
            str(row.get("batch", "")),
            str(row.get("micro_batches") or ""),
            str(row.get("updates", "")),
            number(row.get("samples_per_second"), 0),
            number(row.get("seconds"), 0),
            number(row.get("peak", 0) / GIB, 2),
            number(row.get("loss"), 4),
            *([number(row.get("map50"), 4)] if extra else []),
        ]
        yield "| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |"


def cap_text(cap: int) -> str:
    """Format a cap; 1 stands for an imitated one."""
    return f"{cap / GIB:.2f} GiB" if cap > 1 else "imitated" if cap else "none"


def number(value: float | None, digits: int) -> str:
    """Format a number that may be missing."""
    return "" if value is None else f"{value:.{digits}f}"


def prepare_images(bccd: Path, folder: Path, *, quick: bool) -> None:
    """Copy the images, because Ultralytics writes beside them, and let it find the font that it would download."""
    for part in ("train", "val"):
        images = sorted((bccd / "images" / part).iterdir())[: 20 if quick else None]
        for kind, suffix in (("images", None), ("labels", ".txt")):
            target = folder / kind / part
            target.mkdir(parents=True)
            for image in images:
                source = bccd / kind / part / (image.with_suffix(suffix).name if suffix else image.name)
                shutil.copy(source, target)
    names = "{0: RBC, 1: WBC, 2: Platelets}"
    (folder / "bccd.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {names}\n")
    (folder / "Ultralytics").mkdir()
    (folder / "Ultralytics" / "Arial.ttf").touch()  # without plots it only has to exist


def compare(task: str, base: Run, deadline: float) -> Iterator[dict[str, Any]]:
    """Yield the row of the plain run without a cap, then those of all variants under half of its peak."""
    plain = run_process(base, deadline)
    yield plain
    cap = plain.get("peak", 0) // 2 if base.device == "cuda" else 1
    if not plain["finished"] or not cap:
        return
    for variant in VARIANTS[task]:
        yield run_process(Run(**{**asdict(base), "variant": variant, "cap": cap}), deadline)


def versions(packages: str) -> dict[str, str]:
    """Return the machine and the versions that the numbers were measured with."""
    sys.path.append(packages)
    from importlib.metadata import PackageNotFoundError, version

    import measure
    import torch

    found = measure.machine() if torch.cuda.is_available() else {"torch": str(torch.__version__)}
    for name in ("transformers", "accelerate", "ultralytics"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def main() -> None:
    """Run all variants, print a line of JSON for each, and a table for each framework."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", choices=[*VARIANTS, []], help="bert, yolo; both if none is named")
    parser.add_argument("--bccd", type=Path, help="the folder of the BCCD data set, for yolo")
    parser.add_argument("--packages", default="", help="a folder with packages that this Python lacks")
    parser.add_argument("--out", type=Path, help="write the lines of JSON here, too")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=float, default=360, help="of all runs together")
    parser.add_argument("--quick", action="store_true", help="small networks, few samples: a test of this script")
    options = parser.parse_args()
    tasks = options.tasks or list(VARIANTS)
    if "yolo" in tasks and options.bccd is None:
        parser.error("yolo needs --bccd")
    packages = str(Path(options.packages).resolve()) if options.packages else ""
    deadline = time.time() + options.seconds
    lines = [json.dumps(versions(packages))]
    print(lines[0], flush=True)
    for task in tasks:
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            if task == "yolo":
                prepare_images(options.bccd, Path(folder), quick=options.quick)
            base = Run(task, "plain", 0, folder, packages, options.device, options.quick)
            for row in compare(task, base, deadline):
                rows.append(row)
                lines.append(json.dumps(row))
                print(lines[-1], flush=True)
                if options.out:
                    options.out.write_text("\n".join(lines) + "\n")
        print("\n" + "\n".join(table(task, rows)) + "\n", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print("\n" + json.dumps(run_here(Run(**json.loads(sys.argv[2])))), flush=True)
    else:
        main()
