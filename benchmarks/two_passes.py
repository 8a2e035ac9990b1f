"""Cost and memory of a contrastive model whose batch is split in two passes, on this machine's GPU.

    python benchmarks/two_passes.py --out two_passes.json [--blocks 8]

A model of two vision transformers with CLIP's loss trains on one batch, which is on the GPU already: unsplit, and under
the guard in two and four micro-batches. Memory is measured in a process for each; the times come from one process, in
turns, so that they compare.
"""

from __future__ import annotations

import argparse
import json
import operator
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "src")]

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import oomph  # noqa: E402

BATCH, SIZE, PATCH, WIDTH, LAYERS, HEADS = 512, 224, 16, 768, 6, 12  # large enough to keep an H200 busy
MICRO_BATCHES = {"one pass": None, "two micro-batches": BATCH // 2, "four micro-batches": BATCH // 4}
STEPS = 5


class Encoder(nn.Module):
    """A vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.position = nn.Parameter(torch.randn(1, (SIZE // PATCH) ** 2, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        return F.normalize(self.head(self.layers(x).mean(1)), dim=1)


class TwoTowers(nn.Module):
    """Two encoders and a learned temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Encoder(), Encoder()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.first(first), self.second(second), self.scale.exp()


def clip_loss(outputs: tuple[Tensor, Tensor, Tensor], targets: Tensor) -> Tensor:
    """Return CLIP's loss; the targets are the numbers of the pairs."""
    first, second, scale = outputs
    logits = scale * first @ second.T
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


def batch(samples: int, size: object = None) -> Any:
    """Return images for both encoders, and the numbers of the pairs."""
    del size
    images = torch.rand(samples, 3, SIZE, SIZE)
    return (images, images.flip(3)), torch.arange(samples)


def job() -> oomph.Job:
    """Return the Job, to predict it."""
    return oomph.Job(
        model=TwoTowers,
        batch=batch,
        loss=clip_loss,
        optimizer=lambda model: torch.optim.AdamW(model.parameters(), 1e-4, fused=True),
    )


def build_guard(micro_batch: int | None) -> Any:
    """Return the guard of a new model."""
    torch.manual_seed(0)
    model = TwoTowers().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    return oomph.guard(model=model, optimizer=optimizer, loss=clip_loss, precision="amp-bf16", micro_batch=micro_batch)


def batch_on_gpu() -> Any:
    """Return the batch where a loader that prefetches leaves it."""
    (first, second), targets = batch(BATCH)
    return (first.cuda(), second.cuda()), targets.cuda()


def measure(name: str) -> dict[str, Any]:
    """Measure the peak of three steps in this process."""
    guard, data = build_guard(MICRO_BATCHES[name]), batch_on_gpu()
    reports = [guard.step(data) for _ in range(3)]
    torch.cuda.synchronize()
    return {"measured": torch.cuda.max_memory_allocated(), "micro_batches": reports[-1].micro_batches}


def predict(name: str) -> float:
    """Return the predicted peak."""
    micro_batch = MICRO_BATCHES[name]
    passes = 1 if micro_batch is None else 2
    settings = oomph.Settings(BATCH, micro_batch, precision="amp-bf16", allocator="expandable", passes=passes)
    return oomph.predict(job(), settings, "H200").allocated.value


def measure_times(blocks: int) -> dict[str, list[float]]:
    """Return the seconds of a step, for each block of steps."""
    data = batch_on_gpu()
    guards = {name: build_guard(micro_batch) for name, micro_batch in MICRO_BATCHES.items()}
    times: dict[str, list[float]] = {name: [] for name in guards}
    for block in range(blocks + 1):
        for name, guard in guards.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(STEPS):
                guard.step(data)
            torch.cuda.synchronize()
            if block:  # the first one warms up
                times[name].append((time.perf_counter() - start) / STEPS)
    return times


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path)
    arguments.add_argument("--blocks", type=int, default=8)
    arguments.add_argument("--measure", choices=MICRO_BATCHES, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure)))
        return
    rows: dict[str, dict[str, Any]] = {}
    for name in MICRO_BATCHES:
        output = subprocess.run(
            [sys.executable, __file__, "--measure", name], capture_output=True, text=True, check=True
        )
        rows[name] = json.loads(output.stdout.splitlines()[-1])
    times = measure_times(options.blocks)
    for name, row in rows.items():
        row["predicted"] = predict(name)
        row["memory_error"] = row["predicted"] / row["measured"] - 1
        row["seconds"] = statistics.median(times[name])
        row["ratio"] = statistics.median(map(operator.truediv, times[name], times["one pass"]))
        print(name, row, flush=True)
    info = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    if options.out is not None:
        options.out.write_text(json.dumps(info, indent=1))


if __name__ == "__main__":
    main()
