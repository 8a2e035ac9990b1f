"""Cost and memory of a contrastive model whose batch is split in two passes, on this machine's GPU.

    python benchmarks/two_passes.py --out two_passes.json [--blocks 8]

A model of two vision transformers with CLIP's loss trains on one batch: unsplit and without a cap; then under the guard
in micro-batches that need at most half of that memory. Both run in turns in one process, so that their times compare.
"""

from __future__ import annotations

import argparse
import json
import statistics
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

BATCH, SIZE, PATCH, WIDTH, LAYERS, HEADS = 512, 128, 16, 512, 8, 8
STEPS = 10


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


def main() -> None:
    """Measure and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--blocks", type=int, default=8)
    options = arguments.parse_args()
    data = batch(BATCH)
    rows: dict[str, Any] = {}
    guards = {}
    for name, micro_batch in (("one pass", None), ("micro-batches of 256", 256), ("128", 128), ("64", 64)):
        passes = 1 if micro_batch is None else 2
        settings = oomph.Settings(BATCH, micro_batch, precision="amp-bf16", allocator="expandable", passes=passes)
        predicted = oomph.predict(job(), settings, "H200")
        torch.manual_seed(0)
        model = TwoTowers().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
        guards[name] = oomph.guard(
            model=model, optimizer=optimizer, loss=clip_loss, precision="amp-bf16", micro_batch=micro_batch
        )
        resident = torch.cuda.memory_allocated()
        for _ in range(3):
            report = guards[name].step(data)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        base = torch.cuda.memory_allocated()
        guards[name].step(data)
        torch.cuda.synchronize()
        # Models of the rows before are in memory, too; each has the same weights and states.
        weights = sum(parameter.numel() * 4 for parameter in model.parameters())
        others = base - 3 * weights
        rows[name] = {
            "predicted": predicted.allocated.value,
            "measured": torch.cuda.max_memory_allocated() - others,
            "micro_batches": report.micro_batches,
            "resident": resident,
            "others": others,
        }
    times: dict[str, list[float]] = {name: [] for name in guards}
    for _ in range(options.blocks):
        for name, guard in guards.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(STEPS):
                guard.step(data)
            torch.cuda.synchronize()
            times[name].append((time.perf_counter() - start) / STEPS)
    for name, row in rows.items():
        ratios = [ours / whole for ours, whole in zip(times[name], times["one pass"], strict=True)]
        row["seconds"] = statistics.median(times[name])
        row["ratio"] = statistics.median(ratios)
        row["memory_error"] = row["predicted"] / row["measured"] - 1
        print(name, {key: value if value > 1e6 else round(value, 4) for key, value in row.items()}, flush=True)
    info = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}
    options.out.write_text(json.dumps(info, indent=1))


if __name__ == "__main__":
    main()
