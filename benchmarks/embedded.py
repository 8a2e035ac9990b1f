"""Train a YOLOv5n on the embedded data set with the plainest loop there is, and print mAP and time as it goes.

    python benchmarks/embedded.py --seed 0 --threads 2

It stands for nothing but the recipe of `make train`: no guard, no plan, no checkpoints.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from oomph.changes import convert_model
from oomph.detect import (
    VALIDATION,
    DetectionLoss,
    Ema,
    EmbeddedRun,
    ImageResult,
    Schedule,
    Scores,
    build_optimizer,
    collate,
    draw_scene,
    image_result,
    letterbox,
    sample,
    score,
    set_rates,
    split_batch,
    suppress,
    yolov5,
)
from oomph.settings import Settings

RUN = EmbeddedRun()


class Scenes:
    """The data set without the detour over files."""

    def __init__(self, split: int, count: int) -> None:
        self._scenes = [draw_scene((5, split, index)) for index in range(count)]

    def __len__(self) -> int:
        return len(self._scenes)

    def image(self, index: int) -> NDArray[np.uint8]:
        return self._scenes[index][0]

    def labels(self, index: int) -> NDArray[np.float32]:
        return self._scenes[index][1]


def validate(model: nn.Module, scenes: Scenes) -> Scores:
    """MAP of a network on scenes."""
    results: list[ImageResult] = []
    for index in range(len(scenes)):
        framed, fit = letterbox(scenes.image(index), (RUN.size, RUN.size))
        images = torch.from_numpy(framed).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            found = suppress(model(images)[0], VALIDATION)[0]
        results.append(image_result(found, fit, scenes.labels(index)))
    return score(results, RUN.names)


def train(seed: int, pieces: int, every: int) -> None:
    """The whole course."""
    torch.manual_seed(seed)
    scenes, held = Scenes(0, RUN.images.train), Scenes(1, RUN.images.val)
    model = yolov5(RUN.network, len(RUN.names))
    convert_model(model, Settings(RUN.batch, memory_format="channels_last"))  # a third faster on a CPU
    loss = DetectionLoss(model, RUN.recipe.gains, RUN.size)
    optimizer, ema = build_optimizer(model, RUN.recipe, RUN.batch), Ema(model)
    course = Schedule(RUN.recipe, RUN.batch, len(scenes) // RUN.batch, RUN.epochs)
    began = time.perf_counter()
    for iteration in range(course.iterations):
        epoch, at = divmod(iteration, course.per_epoch)
        order = np.random.default_rng((seed, epoch)).permutation(len(scenes))[at * RUN.batch : (at + 1) * RUN.batch]
        made = [sample(scenes, int(i), RUN.size, RUN.recipe.augmentation, (seed, epoch, int(i))) for i in order]
        bytes_, rows = collate(made)
        pixels = torch.from_numpy(bytes_).contiguous(memory_format=torch.channels_last)
        batch = pixels.float() / 255, torch.from_numpy(rows)
        moment, norm = course.at(iteration), loss.normaliser(batch)
        set_rates(optimizer, moment)
        model.train()
        for images, targets in split_batch(batch, pieces):
            loss(model(images), targets, norm).backward()
        if moment.steps:
            nn.utils.clip_grad_norm_(model.parameters(), RUN.recipe.clip)
            optimizer.step()
            optimizer.zero_grad()
            ema.update(model)
        if at == course.per_epoch - 1 and ((epoch + 1) % every == 0 or epoch == RUN.epochs - 1):
            taken = time.perf_counter() - began
            scores = validate(ema.module, held)
            words = f"mAP50 {scores.map50:.3f}, mAP50-95 {scores.map50_95:.3f}, {taken:.0f} s"
            print(f"epoch {epoch + 1}: {words}, {time.process_time():.0f} s of processor", flush=True)


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pieces", type=int, default=1, help="pieces that a batch is split into")
    parser.add_argument("--every", type=int, default=4, help="epochs between validations")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    train(given.seed, given.pieces, given.every)


if __name__ == "__main__":
    main()
