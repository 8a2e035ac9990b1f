"""Trains a small image classifier with Lightning and a guard, on generated images and without a download."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import oomph
from oomph.integrations.lightning import GuardCallback


class Classifier(pl.LightningModule):
    """Tells bright images from dark ones."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2)
        )

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean loss of a batch."""
        images, labels = batch
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> Any:
        """Train all parameters."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 2, (320,))
    images = torch.rand(320, 3, 32, 32) * 0.5 + labels.view(-1, 1, 1, 1) * 0.3
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    guard = GuardCallback(record="run.jsonl", micro_batch=8)  # as if no more images fitted into memory
    trainer = pl.Trainer(
        max_epochs=3, accumulate_grad_batches=2, gradient_clip_val=1.0, log_every_n_steps=5, logger=False,
        enable_checkpointing=False, callbacks=[guard],
    )  # fmt: skip
    trainer.fit(Classifier(), loader)
    steps = oomph.Record.load("run.jsonl").steps
    print(f"{len(steps)} batches of 32 in {steps[-1]['micro_batches']} micro-batches each")
    print(f"{trainer.global_step} updates, loss {trainer.callback_metrics['loss']:.3f}")


if __name__ == "__main__":
    main()
