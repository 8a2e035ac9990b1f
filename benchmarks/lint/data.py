"""Measures what the mistakes in data loading cost: wrong and right code of each rule, one Markdown row per rule.

python benchmarks/lint/data.py --device cpu
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

MIB = 2**20


def _resident() -> int:
    """Return the RSS of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _seconds(function: Callable[[], Any], repeats: int = 5) -> float:
    """Return the time of the fastest of some calls, after one that warms up."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def _photo(width: int, height: int) -> Image.Image:
    """Return a picture with smooth areas and edges, as photos have."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = [128 + 100 * np.sin(x / scale + y / (scale * 1.7)) for scale in (31.0, 57.0, 97.0)]
    noise = np.random.default_rng(0).normal(0, 6, (height, width, 3))
    return Image.fromarray(np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8))


def _in_new_process(function: str, *arguments: str) -> float:
    """Run a function of this file in a process of its own, and return the number that it prints."""
    call = f"from data import {function}; print({function}({', '.join(map(repr, arguments))}))"
    folder = Path(__file__).parent
    output = subprocess.run([sys.executable, "-c", call], cwd=folder, check=True, capture_output=True, text=True)
    return float(output.stdout.split()[-1])


def decoded_list(folder: str) -> int:
    """Return the bytes that a list of all decoded images adds."""
    before = _resident()
    images = [np.asarray(Image.open(path).convert("RGB")) for path in Path(folder).glob("*.jpg")]
    return (_resident() - before) * bool(images)


def decoded_one_by_one(folder: str) -> int:
    """Return the bytes that reading one image after the other adds."""
    before = _resident()
    total = 0.0
    for path in Path(folder).glob("*.jpg"):
        total += float(np.asarray(Image.open(path).convert("RGB")).mean())
    return (_resident() - before) * bool(total)


def dataset_in_memory() -> str:
    """Measure RAM of a decoded data set."""
    count = 200
    with tempfile.TemporaryDirectory() as folder:
        photo = _photo(1280, 960)
        for i in range(count):
            photo.save(Path(folder, f"{i}.jpg"), quality=85)
        files = sum(path.stat().st_size for path in Path(folder).iterdir())
        wrong, right = (_in_new_process(name, folder) for name in ("decoded_list", "decoded_one_by_one"))
    return (
        f"{wrong / MIB:,.0f} MiB | {right / MIB:.0f} MiB | RSS after reading {count} JPEGs of 1280×960 "
        f"({files / MIB:.0f} MiB on disk)"
    )


class _Images(Dataset[torch.Tensor]):
    def __init__(self, *, as_float: bool) -> None:
        self.pixels = np.random.default_rng(0).integers(0, 255, (512, 512, 3), dtype=np.uint8)
        self.as_float = as_float

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        pixels = self.pixels.astype(np.float32) / 255 if self.as_float else self.pixels.copy()
        return torch.from_numpy(pixels).permute(2, 0, 1)


def float_on_host(device: str) -> str:
    """Measure bytes and time of float32 and uint8 batches."""

    def epoch(*, as_float: bool) -> None:
        for batch in DataLoader(_Images(as_float=as_float), batch_size=16, pin_memory=device == "cuda"):
            moved = batch.to(device, non_blocking=True)
            if not as_float:
                moved = moved.float() / 255
        if device == "cuda":
            torch.cuda.synchronize()

    sizes = [16 * 3 * 512 * 512 * width for width in (4, 1)]
    times = [_seconds(partial(epoch, as_float=as_float), 3) for as_float in (True, False)]
    where = "load, copy and convert" if device == "cuda" else "load and convert"
    return (
        f"{sizes[0] / MIB:.0f} MiB per batch, {times[0] * 1e3 / 64:.2f} ms per image | {sizes[1] / MIB:.0f} MiB, "
        f"{times[1] * 1e3 / 64:.2f} ms | batches of 16×3×512×512 that wait and are copied; time to {where} on {device}"
    )


class _Flip(nn.Module):
    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return image.flip(-1) if torch.rand(()) < self.probability else image


class _Blur(nn.Module):
    def __init__(self, size: int, sigma: float) -> None:
        super().__init__()
        line = torch.exp(-((torch.arange(size) - size // 2) ** 2) / (2 * sigma**2))
        self.register_buffer("kernel", (line[:, None] * line[None]) / (line.sum() ** 2))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        kernel = self.get_buffer("kernel").expand(3, 1, -1, -1)
        return nn.functional.conv2d(image, kernel, padding="same", groups=3)


def transform_per_item() -> str:
    """Measure the time to build transforms for every image."""
    image = torch.rand(3, 32, 32)

    def build() -> nn.Sequential:
        return nn.Sequential(_Flip(0.5), _Blur(3, 1.0), _Flip(0.5), _Blur(5, 2.0), nn.ZeroPad2d(4))

    pipeline = build()

    def anew() -> None:
        for _ in range(200):
            build()(image)

    def once() -> None:
        for _ in range(200):
            pipeline(image)

    wrong, right = _seconds(anew) / 200, _seconds(once) / 200
    return f"{wrong * 1e6:.0f} µs | {right * 1e6:.0f} µs | per image of 32×32, five transforms that are modules"


def resize_after_full_decode() -> str:
    """Measure decoding in full and at a fraction."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "photo.jpg")
        _photo(4000, 3000).save(path, quality=90)

        def full() -> None:
            with Image.open(path) as image:
                np.asarray(image.convert("RGB").resize((224, 224)))

        def draft() -> None:
            with Image.open(path) as image:
                image.draft("RGB", (448, 448))
                np.asarray(image.convert("RGB").resize((224, 224)))

        with Image.open(path) as image:
            image.draft("RGB", (448, 448))
            width, height = image.size
        wrong, right = _seconds(full, 3), _seconds(draft, 3)
    return (
        f"{wrong * 1e3:.0f} ms, {4000 * 3000 * 3 / MIB:.0f} MiB decoded | {right * 1e3:.0f} ms, "
        f"{width * height * 3 / MIB:.1f} MiB | one JPEG of 4000×3000, resized to 224×224 by Pillow"
    )


def pin_without_non_blocking(device: str) -> str:
    """Measure how long the host waits for a copy."""
    if device != "cuda":
        return "needs a GPU | | "
    data = TensorDataset(torch.rand(512, 3, 224, 224))
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()).to(device)

    def epoch(*, non_blocking: bool) -> float:
        submitting = 0.0
        for (batch,) in DataLoader(data, batch_size=64, pin_memory=True):
            start = time.perf_counter()
            moved = batch.to(device, non_blocking=non_blocking)
            submitting += time.perf_counter() - start
            with torch.no_grad():
                model(moved)
        torch.cuda.synchronize()
        return submitting / 8

    for non_blocking in (False, True):
        epoch(non_blocking=non_blocking)
    wrong, right = (min(epoch(non_blocking=non_blocking) for _ in range(5)) for non_blocking in (False, True))
    return (
        f"{wrong * 1e3:.2f} ms | {right * 1e3:.3f} ms | that the host waits per copy of a batch of 64×3×224×224 "
        "float32, with two convolutions on the GPU"
    )


def train_without_shuffle(device: str) -> str:
    """Measure accuracy after training in sorted and in random order."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(10, 32, generator=generator) * 1.5
    labels = torch.arange(10).repeat_interleave(200)  # sorted by class, as folders are
    inputs = centers[labels] + torch.randn(len(labels), 32, generator=generator)
    tests = centers[labels] + torch.randn(len(labels), 32, generator=generator)

    def accuracy(*, shuffle: bool) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(5):
            for x, y in DataLoader(TensorDataset(inputs, labels), batch_size=32, shuffle=shuffle):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
                optimizer.step()
        with torch.no_grad():
            return float((model(tests.to(device)).argmax(1).cpu() == labels).float().mean())

    wrong, right = accuracy(shuffle=False), accuracy(shuffle=True)
    return f"{wrong:.0%} | {right:.0%} | test accuracy after 5 epochs, 10 classes, 2,000 samples sorted by class"


def loader_replaced() -> str:
    """Measure the time to start workers in every epoch."""
    data = TensorDataset(torch.rand(256, 3, 32, 32))
    kept = DataLoader(data, batch_size=32, num_workers=2, persistent_workers=True)

    def anew() -> None:
        for _ in DataLoader(data, batch_size=32, num_workers=2):
            pass

    def once() -> None:
        for _ in kept:
            pass

    wrong, right = _seconds(anew), _seconds(once)
    return f"{wrong * 1e3:.0f} ms | {right * 1e3:.0f} ms | per epoch of 8 small batches, 2 workers"


class _Tiles(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.zeros(3, 512, 512)


def prefetch_over_budget() -> str:
    """Measure shared memory of batches that wait."""

    def waiting(prefetch: int) -> int:
        def free() -> int:
            state = os.statvfs("/dev/shm")  # noqa: S108  where torch's workers put batches
            return state.f_bavail * state.f_frsize

        before = free()
        batches = iter(DataLoader(_Tiles(), batch_size=2, num_workers=2, prefetch_factor=prefetch))
        next(batches)
        time.sleep(3)  # the workers fill their queues
        used = before - free()
        del batches
        return used

    wrong, right = waiting(8), waiting(2)
    return (
        f"{wrong / MIB:.0f} MiB | {right / MIB:.0f} MiB | in /dev/shm while the training step runs: 2 workers, batch 2 "
        "of 3×512×512 float32, prefetch_factor 8 and 2"
    )


def main() -> None:
    """Print a row for every rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    device = parser.parse_args().device
    torch.set_num_threads(1)  # of a worker
    print(f"torch {torch.__version__}, {device}\n\n| rule | wrong | right | what was measured |\n|---|---|---|---|")
    rows: dict[str, Callable[[], str]] = {
        "dataset-in-memory": dataset_in_memory,
        "float-on-host": lambda: float_on_host(device),
        "transform-per-item": transform_per_item,
        "resize-after-full-decode": resize_after_full_decode,
        "pin-without-non-blocking": lambda: pin_without_non_blocking(device),
        "train-without-shuffle": lambda: train_without_shuffle(device),
        "loader-replaced": loader_replaced,
        "prefetch-over-budget": prefetch_over_budget,
    }
    for rule, measure in rows.items():
        print(f"| `{rule}` | {measure()} |", flush=True)


if __name__ == "__main__":
    main()
