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
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scenery import NAMES, lay_out, write

from oomph.data import Window, decode, decode_windows, read_header
from oomph.detect import (
    Augmentation,
    FoundObjects,
    Gains,
    ImageResult,
    OrderForm,
    Recipe,
    Scores,
    Suppression,
    draw_boxes,
    evaluate_weights,
    find_objects,
    found_boxes,
    score,
    train,
)
from oomph.machine import peak_rss_bytes
from oomph.units import format_size

SIDE, OBJECTS = 20_000, 1000
SEEDS = {"train": 1, "test": 2, "val": 3}
# Side of the training windows, epochs, learning rate. Small ones first, which objects fill; then larger ones, which
# show more of the ground and of what only looks like an object.
COURSES = ((128, 4, 0.08), (256, 2, 0.04), (256, 2, 0.03))
VIEW = 640  # side of the windows when the image is searched
LIMITS = Suppression(confidence=0.05, overlap=0.45)  # how sure a box must be; what overlaps more is one


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


class Teller:
    """Prints what is worth it."""

    def said(self, words: str) -> None:
        print(words, flush=True)

    def counted(self, what: str, done: int, total: int | None) -> None:
        del what, done, total

    def planned(self, made: Any) -> None:
        del made

    def stepped(self, epoch: int, done: int, total: int, facts: dict[str, Any]) -> None:
        if done % 20 == 0:
            print(f"epoch {epoch + 1}, {done} of {total}: loss {facts['loss']:.3f}", flush=True)

    def ended_epoch(self, row: dict[str, Any]) -> None:
        print(f"epoch {row['epoch']}: mAP50 {row.get('map50')} on the small image", flush=True)


def recipe(size: int, rate: float = 0.08) -> Recipe:
    """A short course from fresh weights: many small optimizer steps at a high rate."""
    return Recipe(
        rate=rate,
        warmup_epochs=0.5,
        least_warmup=20,
        nominal_batch=8,
        gains=Gains(objectness=(640 / size) ** 2, classes=4.0),
        augmentation=Augmentation(scale=0.3, flip_vertical=0.5),
    )


def learn(folder: Path) -> Path:
    """Train by tiles, one course after another."""
    weights: Path | None = None
    for number, (side, epochs, rate) in enumerate(COURSES, 1):
        place = folder / f"course-{number}"
        if not (place / "weights" / "last.pt").exists():
            began, busy = time.perf_counter(), time.process_time()
            form = OrderForm(
                data=folder / "data.yaml",
                folder=place,
                network="n",
                weights=weights,
                size=side,
                batch=8,
                epochs=epochs,
                tiles=True,
                device="cpu",
                recipe=recipe(side, rate),
                every=epochs,
            )
            train(form, Teller())
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
    usual: dict[str, Any] = {"size": VIEW, "limits": LIMITS, "device": "cpu"}
    small = folder / "warm.png"
    Image.fromarray(np.zeros((VIEW * 3, VIEW * 3, 3), np.uint8)).save(small)
    find_objects(Path(weights), small, folder / "warm", tiles=VIEW, **usual)
    before, began, busy = peak_rss_bytes(), time.perf_counter(), time.process_time()
    found = find_objects(Path(weights), Path(image), folder / f"found-{tiles}", tiles=int(tiles), **usual)
    facts = {
        "rows": _rows(found),
        "before": before,
        "grew": peak_rss_bytes() - before,
        "seconds": time.perf_counter() - began,
        "processor": time.process_time() - busy,
        "picture": found.images[0].picture,
        "advice": found.advice,
    }
    (folder / f"found-{tiles}.json").write_text(json.dumps(facts))


def _rows(found: FoundObjects) -> list[list[float]]:
    boxes = found.images[0].boxes
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
        drawn = draw_boxes(np.ascontiguousarray(pixels), found_boxes(rows), NAMES)
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
    form = OrderForm(
        data=data,
        folder=small / "run",
        network="n",
        size=VIEW,
        batch=1,
        epochs=30,
        device="cpu",
        recipe=recipe(VIEW),
        every=30,
    )
    train(form, Teller())
    scores = evaluate_weights(small / "run" / "weights" / "last.pt", data, "val", VIEW, 1, "cpu")
    print(f"trained and run on images squeezed to {VIEW}: {_figures(scores)}", flush=True)


def _figures(scores: Scores) -> str:
    means = f"mAP50 {scores.map50:.3f}, mAP50-95 {scores.map50_95:.3f}"
    return f"{means}, precision {scores.precision:.3f}, recall {scores.recall:.3f}"


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
