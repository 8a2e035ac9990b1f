"""Satellite-style proof: a thousand small objects in an image of 20,000 × 20,000, found by tiles and lost without.

    python benchmarks/satellite.py --folder runs/satellite

makes two such images (and a small one for validation), trains a YOLOv5n on windows of one, searches the other by tiles
in a process of its own whose memory is measured, scores what was found in pixels of the whole image, and compares with
the same image squeezed to 640 pixels: through the same detector, and through one that was trained on squeezed images.
What is there already (images, weights) is used again. Needs tifffile and imagecodecs to write the images.
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
from scenery import NAMES, lay_out, write

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
# Side of the training windows, epochs, learning rate. Small ones first, which objects fill; then larger ones, which
# show more of the ground and of what only looks like an object.
COURSES = ((128, 4, 0.08), (256, 2, 0.04), (256, 2, 0.03))
VIEW = 640  # side of the windows when the image is searched
NMS = NmsConfig(conf_thres=0.05, iou_thres=0.45)


def main() -> None:
    """Read the arguments and go through all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/satellite"))
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--search", nargs=3, metavar=("WEIGHTS", "IMAGE", "TILES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.search:
        _search(given.folder, *given.search)
        return
    make(given.folder, given.side, given.objects)
    weights = learn(given.folder)
    image = given.folder / "images" / "test" / "test.tif"
    for words, tiles in ((f"by tiles of {VIEW}", VIEW), (f"squeezed to {VIEW}", 0)):
        report(words, given.folder, search(given.folder, weights, image, tiles))
    squeezed(given.folder)


def make(folder: Path, side: int, objects: int) -> None:
    """Write the images that are not there yet."""
    for split, seed in SEEDS.items():
        own, count = (side, objects) if split != "val" else (side // 5, max(objects * 3 // 50, 3))
        label = folder / "labels" / split / f"{split}.txt"
        if not label.exists():
            began = time.perf_counter()
            write(lay_out(own, count, seed), folder / "images" / split / f"{split}.tif", label)
            print(f"made {split}: {own} pixels, {count} objects, {time.perf_counter() - began:.0f} s", flush=True)
    lines = ["path: .", *(f"{split}: images/{split}" for split in SEEDS), f"names: [{', '.join(NAMES)}]"]
    (folder / "data.yaml").write_text("\n".join(lines) + "\n")


class PrintProgress:
    """Prints every 20th step and every epoch."""

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
        print(f"epoch {row['epoch']}: mAP50 {row.get('map50')} on the small image", flush=True)


def hyperparameters(imgsz: int, lr0: float = 0.08) -> Hyperparameters:
    """Return hyperparameters for a short training from fresh weights: many small steps at a high learning rate."""
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


def learn(folder: Path) -> Path:
    """Train by tiles, one course after another."""
    weights: Path | None = None
    for number, (side, epochs, rate) in enumerate(COURSES, 1):
        place = folder / f"course-{number}"
        if not (place / "weights" / "last.pt").exists():
            began, busy = time.perf_counter(), time.process_time()
            config = TrainConfig(
                data=folder / "data.yaml",
                run_dir=place,
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
            train(config, PrintProgress())
            taken, worked = time.perf_counter() - began, time.process_time() - busy
            print(f"trained by tiles of {side}: {taken:.0f} s, {worked:.0f} s of processor", flush=True)
        weights = place / "weights" / "last.pt"
    assert weights is not None  # noqa: S101  there are courses
    return weights


def search(folder: Path, weights: Path, image: Path, tiles: int) -> dict[str, Any]:
    """Search the image in a fresh process."""
    asked = ["--folder", str(folder), "--search", str(weights), str(image), str(tiles)]
    subprocess.run([sys.executable, __file__, *asked], check=True)
    told: dict[str, Any] = json.loads((folder / f"found-{tiles}.json").read_text())
    return told


def _search(folder: Path, weights: str, image: str, tiles: str) -> None:
    """What that process does: warm up on a small image, so that what torch takes for itself is not counted."""
    config = InferenceConfig(Path(weights), VIEW, "cpu", VIEW, NMS)
    small = folder / "warm.png"
    Image.fromarray(np.zeros((VIEW * 3, VIEW * 3, 3), np.uint8)).save(small)
    detect_objects(config, small, folder / "warm")
    before, began, busy = peak_rss_bytes(), time.perf_counter(), time.process_time()
    result = detect_objects(replace(config, tiles=int(tiles)), Path(image), folder / f"found-{tiles}")
    facts = {
        "rows": _rows(result),
        "before": before,
        "grew": peak_rss_bytes() - before,
        "seconds": time.perf_counter() - began,
        "processor": time.process_time() - busy,
        "drawing": result.images[0].drawing,
        "hint": result.hint,
    }
    (folder / f"found-{tiles}.json").write_text(json.dumps(facts))


def _rows(result: DetectResult) -> list[list[float]]:
    boxes = result.images[0].boxes
    return [[*box[:4], box[5], float(NAMES.index(box[4]))] for box in boxes]


def report(words: str, folder: Path, facts: dict[str, Any]) -> None:
    """Score what was found and print a row of the table."""
    found = np.array(facts["rows"], np.float32).reshape(-1, 6)
    scores = score([ImageResult(found, truth(folder))], NAMES)
    memory = f"{format_size(facts['grew'])} beyond the {format_size(facts['before'])} of torch and the network"
    spent = f"{facts['seconds']:.0f} s, {facts['processor']:.0f} s of processor"
    print(f"{words}: {_figures(scores)}; {memory}; {spent}", flush=True)
    for one in scores.by_class:
        print(f"  {one.name}: {one.boxes} objects, mAP50 {one.map50:.3f}, mAP50-95 {one.map50_95:.3f}", flush=True)
    if len(found):
        crop(folder, found)


def truth(folder: Path) -> Any:
    """Class and corners of the objects of the test image, in pixels."""
    side = read_header(str(folder / "images" / "test" / "test.tif")).width
    rows = np.loadtxt(folder / "labels" / "test" / "test.txt", ndmin=2)
    centre, half = rows[:, 1:3] * side, rows[:, 3:5] * side / 2
    return np.column_stack((rows[:, 0], centre - half, centre + half)).astype(np.float32)


def crop(folder: Path, found: Any) -> None:
    """The part of the image with the most objects, as it is and with what was found, to be looked at."""
    there = truth(folder)[:, 1:3]
    middle = there[int(np.argmax([(np.abs(there - place).max(1) < 350).sum() for place in there]))]
    left, top = (max(int(value) - 400, 0) for value in middle)
    pixels = decode_windows(folder / "images" / "test" / "test.tif", [Window(left, top, left + 800, top + 800)])[
        0
    ].pixels
    rows = found[found[:, 4] >= 0.25].copy()
    rows[:, :4] -= np.array([left, top, left, top], np.float32)
    rows = rows[(rows[:, :2] > 0).all(1) & (rows[:, 2:4] < 800).all(1)]
    Image.fromarray(pixels).save(folder / "crop.png")
    if len(rows):  # a search that found nothing leaves the picture of the one before
        drawn = draw_boxes(np.ascontiguousarray(pixels), prediction_boxes(rows), NAMES)
        Image.fromarray(drawn).save(folder / "crop-found.png")


def squeezed(folder: Path) -> None:
    """A detector trained on the squeezed training image, on the squeezed test image."""
    small = folder / "squeezed"
    for split in ("train", "test"):
        place = small / "images" / split / f"{split}.png"
        label = small / "labels" / split / f"{split}.txt"
        if not label.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            label.parent.mkdir(parents=True, exist_ok=True)
            source = folder / "images" / split / f"{split}.tif"
            Image.fromarray(decode(source, (VIEW, VIEW)).pixels).save(place)
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
    train(config, PrintProgress())
    scores = validate_weights(InferenceConfig(small / "run" / "weights" / "last.pt", VIEW, "cpu"), data, batch=1)
    print(f"trained and run on images squeezed to {VIEW}: {_figures(scores)}", flush=True)


def _figures(scores: Scores) -> str:
    means = f"mAP50 {scores.map50:.3f}, mAP50-95 {scores.map50_95:.3f}"
    return f"{means}, precision {scores.precision:.3f}, recall {scores.recall:.3f}"


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
