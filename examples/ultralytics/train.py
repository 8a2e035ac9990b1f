"""Trains a small detector of Ultralytics with a guard, on generated images and without a download."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from PIL import Image

os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_CONFIG_DIR", str(Path("settings").resolve()))

from ultralytics import YOLO

import oomph
from oomph.integrations.ultralytics import add_guard

NETWORK = """
nc: 1
backbone:
  - [-1, 1, Conv, [8, 3, 2]]
  - [-1, 1, Conv, [16, 3, 2]]
  - [-1, 1, Conv, [32, 3, 2]]
  - [-1, 1, Conv, [64, 3, 2]]
  - [-1, 1, Conv, [64, 3, 2]]
head:
  - [[2, 3, 4], 1, Detect, [nc]]
"""


def save_squares(folder: Path, count: int) -> None:
    """Save images with a white square each."""
    rng = np.random.default_rng(0)
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        x, y = rng.integers(0, 64, 2)
        pixels = rng.integers(0, 100, (96, 96, 3), np.uint8)
        pixels[y : y + 32, x : x + 32] = 255
        Image.fromarray(pixels).save(folder / f"images/{number}.png")
        (folder / f"labels/{number}.txt").write_text(f"0 {(x + 16) / 96} {(y + 16) / 96} {32 / 96} {32 / 96}")


def main() -> None:
    save_squares(Path("squares"), 32)
    Path("squares.yaml").write_text(f"path: {Path('squares').resolve()}\ntrain: images\nval: images\nnames: [square]\n")
    Path("tiny.yaml").write_text(NETWORK)
    model = YOLO("tiny.yaml")
    add_guard(model, record="run.jsonl", guard_options={"micro_batch": 4})  # as if no more images fitted into memory
    model.train(data="squares.yaml", epochs=3, batch=16, imgsz=96, workers=0, device="cpu", plots=False, project="runs")
    steps = oomph.Record.load("run.jsonl").steps
    print(f"{len(steps)} batches of 16 in {steps[-1]['micro_batches']} micro-batches each")


if __name__ == "__main__":
    main()
