"""Trains under a limit of the address space: `python -m tests.integrations.trainer_process plain|guarded FOLDER`."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oomph.monitor import load_record
from oomph.units import MIB

from ..recovery.training_process import LargeActivations
from . import conftest  # noqa: F401  it declares torchvision's operators


class Regressor(LargeActivations):
    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        outputs = super().forward(x)
        return outputs if labels is None else {"loss": torch.nn.functional.mse_loss(outputs, labels)}


def main() -> None:
    import transformers

    from oomph.integrations.transformers import GuardedTrainer

    from .trainers import arguments

    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = [{"x": torch.randn(8), "labels": torch.randn(8)} for _ in range(48)]

    def train(batch: int, steps: int) -> None:
        args = arguments(
            folder, per_device_train_batch_size=batch, gradient_accumulation_steps=1, max_steps=steps,
            dataloader_pin_memory=False,
        )  # fmt: skip
        model, record = Regressor(), folder / f"{kind}.jsonl"
        if kind == "plain":
            transformers.Trainer(model=model, args=args, train_dataset=rows).train()
        else:
            record.unlink(missing_ok=True)
            GuardedTrainer(model=model, args=args, train_dataset=rows, record=record).train()

    train(1, 1)  # torch and transformers allocate some memory once
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 400 * MIB, resource.RLIM_INFINITY))
    train(16, 3)
    if kind == "guarded":
        steps = load_record(folder / "guarded.jsonl").steps
        (folder / "guarded.json").write_text(json.dumps([step["micro_batches"] for step in steps]))


if __name__ == "__main__":
    main()
