"""Trains under a limit of the address space: `python -m tests.integrations.lightning_process plain|guarded FOLDER`."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oomph.units import MIB

from ..recovery.training_process import LargeActivations
from . import conftest  # noqa: F401  it declares torchvision's operators


def main() -> None:
    import lightning.pytorch as pl

    from oomph.integrations.lightning import GuardCallback

    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)

    class Regressor(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = LargeActivations()

        def training_step(self, batch: Any) -> Tensor:
            loss = nn.functional.mse_loss(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def train(batch: int, steps: int) -> None:
        rows = torch.utils.data.TensorDataset(torch.randn(48, 8), torch.randn(48, 8))
        record = folder / f"{kind}.jsonl"
        record.unlink(missing_ok=True)
        trainer = pl.Trainer(
            accelerator="cpu", max_steps=steps, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            callbacks=[] if kind == "plain" else [GuardCallback(record=record)],
        )  # fmt: skip
        trainer.fit(Regressor(), torch.utils.data.DataLoader(rows, batch))

    train(1, 1)  # torch and Lightning allocate some memory once
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 400 * MIB, resource.RLIM_INFINITY))
    train(16, 3)


if __name__ == "__main__":
    main()
