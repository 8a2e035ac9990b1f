"""Detection of a thousand small objects in an image of 20,000 × 20,000, with tiles and without.

    python benchmarks/satellite.py --folder runs/satellite

generates two such images (and a small one for validation), trains a YOLOv5n on windows of the first, and detects
objects in the second by tiles, in a separate process with measured memory. Detections are scored in pixels of the
whole image. The comparison is the image resized to 640 pixels, with the same detector and with one that was trained on
resized images. Existing images and weights are reused. Needs tifffile and imagecodecs to write the images.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scenery import NAMES, plan_scene, write_scene

from oomph.data import Window, decode, decode_windows, read_header
from oomph.detect import (
    DetectResult,
    Hyperparameters,
    ImageResult,
    InferenceConfig,
    NmsConfig,
    Scores,
    StepStats,
    TrainConfig,
    detect_objects,
    draw_boxes,
    prediction_boxes,
    score,
    train,
    validate_weights,
)
from oomph.machine import peak_rss_bytes
from oomph.units import format_size

SIDE, OBJECTS = 20_000, 1000
SEEDS = {"train": 1, "test": 2, "val": 3}
# Side of the training windows, epochs, learning rate. Small windows come first, because objects fill them; larger ones
# show more background and distractors.
STAGES = ((128, 4, 0.08), (256, 2, 0.04), (256, 2, 0.03))
VIEW = 640  # side of the windows for detection
NMS = NmsConfig(conf_thres=0.05, iou_thres=0.45)


def main() -> None:
    """Parse the arguments and run everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/satellite"))
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--detect", nargs=3, metavar=("WEIGHTS", "IMAGE", "TILES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.detect:
        _detect(options.folder, *options.detect)
        return
    write_dataset(options.folder, options.side, options.objects)
    weights = train_stages(options.folder)
    image = options.folder / "images" / "test" / "test.tif"
    for title, tiles in ((f"tiles of {VIEW}", VIEW), (f"resized to {VIEW}", 0)):
        report(title, options.folder, detect(options.folder, weights, image, tiles))
    evaluate_resized(options.folder)


def write_dataset(folder: Path, side: int, objects: int) -> None:
    """Write the images that do not exist yet."""
    for split, seed in SEEDS.items():
        split_side, count = (side, objects) if split != "val" else (side // 5, max(objects * 3 // 50, 3))
        label = folder / "labels" / split / f"{split}.txt"
        if not label.exists():
            started = time.perf_counter()
            write_scene(plan_scene(split_side, count, seed), folder / "images" / split / f"{split}.tif", label)
            seconds = time.perf_counter() - started
            print(f"wrote {split}: {split_side} pixels, {count} objects, {seconds:.0f} s", flush=True)
    lines = ["path: .", *(f"{split}: images/{split}" for split in SEEDS), f"names: [{', '.join(NAMES)}]"]
    (folder / "data.yaml").write_text("\n".join(lines) + "\n")


class PrintedProgress:
    """Prints messages, losses and mAP."""

    def log(self, message: str) -> None:
        print(message, flush=True)

    def on_progress(self, task: str, done: int, total: int | None) -> None:
        del task, done, total

    def on_plan(self, plan: Any) -> None:
        del plan

    def on_step(self, stats: StepStats) -> None:
        if stats.iteration % 20 == 0:
            print(f"epoch {stats.epoch}, {stats.iteration} of {stats.iterations}: loss {stats.loss:.3f}", flush=True)

    def on_epoch_end(self, row: dict[str, Any]) -> None:
        print(f"epoch {row['epoch']}: mAP50 {row.get('map50')} on the validation image", flush=True)


def hyperparameters(imgsz: int, lr0: float = 0.08) -> Hyperparameters:
    """Return settings for a short training from scratch: many small optimizer steps at a high learning rate."""
    return Hyperparameters(
        lr0=lr0,
        warmup_epochs=0.5,
        min_warmup_iterations=20,
        nominal_batch=8,
        obj=(640 / imgsz) ** 2,
        cls=4.0,
        scale=0.3,
        flipud=0.5,
    )


def train_stages(folder: Path) -> Path:
    """Train on tiles, one stage after another, and return the weights."""
    weights: Path | None = None
    for number, (side, epochs, rate) in enumerate(STAGES, 1):
        run = folder / f"stage-{number}"
        if not (run / "weights" / "last.pt").exists():
            started, cpu_started = time.perf_counter(), time.process_time()
            config = TrainConfig(
                data=folder / "data.yaml",
                run_dir=run,
                cfg="n",
                weights=weights,
                imgsz=side,
                batch=8,
                epochs=epochs,
                tiles=True,
                device="cpu",
                hyp=hyperparameters(side, rate),
                val_interval=epochs,
            )
            train(config, PrintedProgress())
            seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
            print(f"trained on tiles of {side}: {seconds:.0f} s, {cpu_seconds:.0f} s of CPU time", flush=True)
        weights = run / "weights" / "last.pt"
    assert weights is not None  # noqa: S101  there is at least one stage
    return weights


def detect(folder: Path, weights: Path, image: Path, tiles: int) -> dict[str, Any]:
    """Detect objects in the image in a new process."""
    arguments = ["--folder", str(folder), "--detect", str(weights), str(image), str(tiles)]
    subprocess.run([sys.executable, __file__, *arguments], check=True)
    results: dict[str, Any] = json.loads((folder / f"detections-{tiles}.json").read_text())
    return results


def _detect(folder: Path, weights: str, image: str, tiles: str) -> None:
    """Warm up on a small image, so that the memory of torch is not counted, then detect."""
    config = InferenceConfig(Path(weights), VIEW, "cpu", VIEW, NMS)
    small = folder / "warm.png"
    Image.fromarray(np.zeros((VIEW * 3, VIEW * 3, 3), np.uint8)).save(small)
    detect_objects(config, small, folder / "warm")
    before, started, cpu_started = peak_rss_bytes(), time.perf_counter(), time.process_time()
    detections = detect_objects(replace(config, tiles=int(tiles)), Path(image), folder / f"detections-{tiles}")
    results = {
        "rows": _rows(detections),
        "before": before,
        "growth": peak_rss_bytes() - before,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - cpu_started,
        "drawing": detections.images[0].drawing,
        "hint": detections.hint,
    }
    (folder / f"detections-{tiles}.json").write_text(json.dumps(results))


def _rows(detections: DetectResult) -> list[list[float]]:
    boxes = detections.images[0].boxes
    return [[*box[:4], box[5], float(NAMES.index(box[4]))] for box in boxes]


def report(title: str, folder: Path, results: dict[str, Any]) -> None:
    """Score detections and print a row of the table."""
    rows = np.array(results["rows"], np.float32).reshape(-1, 6)
    scores = score([ImageResult(rows, truth(folder))], NAMES)
    before, growth = format_size(results["before"]), format_size(results["growth"])
    memory = f"{growth} in addition to the {before} of torch and the network"
    seconds = f"{results['seconds']:.0f} s, {results['cpu_seconds']:.0f} s of CPU time"
    print(f"{title}: {_format_scores(scores)}; {memory}; {seconds}", flush=True)
    for label in scores.by_class:
        counts = f"{label.boxes} objects, mAP50 {label.map50:.3f}, mAP50-95 {label.map50_95:.3f}"
        print(f"  {label.name}: {counts}", flush=True)
    if len(rows):
        save_crop(folder, rows)


def truth(folder: Path) -> Any:
    """Return class and corners of the objects of the test image, in pixels."""
    side = read_header(str(folder / "images" / "test" / "test.tif")).width
    rows = np.loadtxt(folder / "labels" / "test" / "test.txt", ndmin=2)
    center, half = rows[:, 1:3] * side, rows[:, 3:5] * side / 2
    return np.column_stack((rows[:, 0], center - half, center + half)).astype(np.float32)


def save_crop(folder: Path, detections: Any) -> None:
    """Save the part of the image with the most objects, without and with detections."""
    objects = truth(folder)[:, 1:3]
    center = objects[int(np.argmax([(np.abs(objects - other).max(1) < 350).sum() for other in objects]))]
    left, top = (max(int(value) - 400, 0) for value in center)
    pixels = decode_windows(folder / "images" / "test" / "test.tif", [Window(left, top, left + 800, top + 800)])[
        0
    ].pixels
    rows = detections[detections[:, 4] >= 0.25].copy()
    rows[:, :4] -= np.array([left, top, left, top], np.float32)
    rows = rows[(rows[:, :2] > 0).all(1) & (rows[:, 2:4] < 800).all(1)]
    Image.fromarray(pixels).save(folder / "crop.png")
    if len(rows):  # otherwise keep the file of the previous method
        drawn = draw_boxes(np.ascontiguousarray(pixels), prediction_boxes(rows), NAMES)
        Image.fromarray(drawn).save(folder / "crop-detections.png")


def evaluate_resized(folder: Path) -> None:
    """Train a detector on the resized training image, and evaluate it on the resized test image."""
    small = folder / "resized"
    for split in ("train", "test"):
        image = small / "images" / split / f"{split}.png"
        label = small / "labels" / split / f"{split}.txt"
        if not label.exists():
            image.parent.mkdir(parents=True, exist_ok=True)
            label.parent.mkdir(parents=True, exist_ok=True)
            source = folder / "images" / split / f"{split}.tif"
            Image.fromarray(decode(source, (VIEW, VIEW)).pixels).save(image)
            label.write_text((folder / "labels" / split / f"{split}.txt").read_text())
    data = small / "data.yaml"
    data.write_text(f"path: .\ntrain: images/train\nval: images/test\nnames: [{', '.join(NAMES)}]\n")
    config = TrainConfig(
        data=data,
        run_dir=small / "run",
        cfg="n",
        imgsz=VIEW,
        batch=1,
        epochs=30,
        device="cpu",
        hyp=hyperparameters(VIEW),
        val_interval=30,
    )
    train(config, PrintedProgress())
    scores = validate_weights(InferenceConfig(small / "run" / "weights" / "last.pt", VIEW, "cpu"), data, batch=1)
    print(f"trained and evaluated on images resized to {VIEW}: {_format_scores(scores)}", flush=True)


def _format_scores(scores: Scores) -> str:
    means = f"mAP50 {scores.map50:.3f}, mAP50-95 {scores.map50_95:.3f}"
    return f"{means}, precision {scores.precision:.3f}, recall {scores.recall:.3f}"


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
