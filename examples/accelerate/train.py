"""Trains a small classifier with accelerate and a guard, on generated points."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import oomph
from oomph.integrations.accelerate import guard


def spirals(count: int) -> TensorDataset:
    """Points on three arms of a spiral, and the number of the arm."""
    arms = torch.randint(3, (count,))
    radii = torch.rand(count)
    angles = 4 * radii + 2 * torch.pi / 3 * arms + 0.1 * torch.randn(count)
    return TensorDataset(torch.stack([radii * angles.cos(), radii * angles.sin()], 1), arms)


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(spirals(4096), batch_size=128, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with guard(
        accelerator,
        model=model,
        optimizer=optimizer,
        loss=nn.functional.cross_entropy,
        clip_grad_norm=1.0,
        record="run.jsonl",
        checkpoint="emergency",
        micro_batch=32,  # as if no more points fitted into memory
    ) as guarded:
        for _ in range(5):
            for batch in loader:
                with accelerator.accumulate(model):
                    report = guarded.step(batch)
        correct = guarded.evaluate(loader, lambda model, batch: (model(batch[0]).argmax(1) == batch[1]).sum())
    steps = oomph.Record.load("run.jsonl").steps
    print(f"{len(steps)} batches in {report.micro_batches} micro-batches each, accuracy {int(sum(correct)) / 4096:.2f}")


if __name__ == "__main__":
    main()
