"""Throughput of `oomph train`, compared with a plain training loop of the same network in the same process.

    python benchmarks/throughput.py --data bccd.yaml --images 4096 --out throughput.json        # on a GPU
    python benchmarks/throughput.py --data bccd.yaml --images 64 --batch 4 --img 64 --net n     # tiny, for the CPU

Bare: forward, loss, backward and step on random tensors on the device. Guarded: one batch with everything that
`oomph train` does in a step (guard, gradient clipping, EMA). Their difference is the cost of the guard. Trained: a real
run over copies of the training images; the median of the epochs after the first one, which decodes. The difference
between guarded and trained is the cost of loading, including the CPU time of worker processes. Bare is measured again
at the end, because the clock rates of a machine change.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import platform
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
import oomph
from oomph.detect import (
    Dataset,
    DetectionLoss,
    Ema,
    Hyperparameters,
    TrainConfig,
    build_optimizer,
    read_dataset,
    read_split,
    train,
    yolov5,
)
from oomph.detect.training import TrainLoss
from oomph.report import ConsoleProgress

BOXES = 40  # per sample of the bare loop, about as many as in a mosaic
STEPS = 20
EPOCHS = 4


def replicate_dataset(data: Dataset, images: int, folder: Path) -> Path:
    """Write a dataset of many images by copying the given ones; links would be resolved to the same file."""
    split = read_split(data, "train")
    for kind in ("images", "labels"):
        for part in ("train", "val"):
            (folder / kind / part).mkdir(parents=True)
    for number, source in zip(range(images), itertools.cycle(split.images), strict=False):
        copy(Path(source), folder, "train", str(number))
    for number, source in enumerate(split.images[:8]):
        copy(Path(source), folder, "val", str(number))
    names = json.dumps(list(data.names))
    file = folder / "data.yaml"
    file.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames: {names}\n")
    return file


def copy(source: Path, folder: Path, part: str, name: str) -> None:
    """Copy an image and its labels under another name."""
    (folder / "images" / part / f"{name}{source.suffix}").write_bytes(source.read_bytes())
    labels = Path(str(source).replace("/images/", "/labels/")).with_suffix(".txt")
    if labels.exists():
        (folder / "labels" / part / f"{name}.txt").write_bytes(labels.read_bytes())


def random_batch(batch: int, side: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return uint8 images and boxes on the device."""
    images = torch.randint(0, 255, (batch, 3, side, side), dtype=torch.uint8, device=device)
    targets = torch.rand(batch * BOXES, 6)
    targets[:, 0], targets[:, 1] = torch.arange(batch).repeat_interleave(BOXES), 0
    targets[:, 4:] *= 0.2
    return images.to(memory_format=torch.channels_last), targets.to(device)


def make_optimizer(model: torch.nn.Module, batch: int, device: torch.device) -> torch.optim.Optimizer:
    """Return the optimizer of `oomph train`."""
    return build_optimizer(model, Hyperparameters(), batch, fused=device.type == "cuda" or None)


def bare_step(options: argparse.Namespace, device: torch.device, classes: int) -> Callable[[], object]:
    """Return a plain training step."""
    model = yolov5(options.net, classes).to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loss, optimizer = DetectionLoss(model, imgsz=options.img), make_optimizer(model, options.batch, device)
    images, targets = random_batch(options.batch, options.img, device)
    autocast = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()

    def step() -> None:
        with autocast:
            value = loss(model(images.float() / 255), targets)
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def guarded_step(options: argparse.Namespace, device: torch.device, classes: int) -> Callable[[], object]:
    """Return the step of `oomph train`, always on the same batch."""
    model = yolov5(options.net, classes).to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    guard = oomph.guard(
        model=model,
        optimizer=make_optimizer(model, options.batch, device),
        loss=TrainLoss(DetectionLoss(model, imgsz=options.img), device),
        split="yolo",
        clip_grad_norm=Hyperparameters().clip_grad_norm,
        ema=Ema(model),
        precision="amp-bf16" if device.type == "cuda" else None,
    )
    batch = random_batch(options.batch, options.img, device)
    return lambda: guard.step(batch)


def measure_speed(step: Callable[[], object], batch: int, device: torch.device) -> dict[str, float]:
    """Return images per second, the host time per step, and the host-device synchronizations per step."""
    synchronize: Callable[[], None] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(5):
        step()
    synchronizations = count_synchronizations(step) if device.type == "cuda" else 0
    synchronize()
    started = time.perf_counter()
    for _ in range(STEPS):
        step()
    host = time.perf_counter() - started
    synchronize()
    total = time.perf_counter() - started
    return {
        "images_per_second": batch * STEPS / total,
        "host_ms": 1e3 * host / STEPS,
        "synchronizations": synchronizations,
    }


def count_synchronizations(step: Callable[[], object]) -> int:
    """Return the host-device synchronizations of a step, as reported by torch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(warning.message).lower() for warning in caught)


def trained(options: argparse.Namespace, data: Dataset) -> list[float]:
    """Return the images per second of each epoch of a real run."""
    with tempfile.TemporaryDirectory() as folder:
        file = replicate_dataset(data, options.images, Path(folder) / "data")
        config = TrainConfig(
            data=file,
            run_dir=Path(folder) / "run",
            cfg=options.net,
            imgsz=options.img,
            batch=options.batch,
            epochs=EPOCHS,
        )
        train(config, ConsoleProgress(quiet=True))
        with (Path(folder) / "run" / "results.csv").open() as rows:
            return [float(row["images_per_second"]) for row in csv.DictReader(rows)]


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--net", default="s")
    parser.add_argument("--img", type=int, default=640)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_num_threads(1)  # as `oomph train` does on a GPU
    data = read_dataset(options.data)
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.processor() or "cpu",
        "torch": torch.__version__,
        **{name: getattr(options, name) for name in ("images", "net", "img", "batch")},
    }
    for name, make_step in (("bare", bare_step), ("guarded", guarded_step)):
        results[name] = measure_speed(make_step(options, device, len(data.names)), options.batch, device)
        print(name, results[name], flush=True)
    results["trained"] = trained(options, data)
    results["bare again"] = measure_speed(bare_step(options, device, len(data.names)), options.batch, device)
    best = max(results[name]["images_per_second"] for name in ("bare", "bare again"))
    results["fraction"] = statistics.median(results["trained"][1:]) / best
    print("trained", results["trained"], "bare again", results["bare again"], flush=True)
    print(f"trained / bare: {results['fraction']:.3f}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
