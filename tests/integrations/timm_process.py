"""Trains under a limit of the address space: `python -m tests.integrations.timm_process plain|guarded FOLDER`."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch
from torch import nn

from oomph.units import MIB

from ..recovery.training_process import LargeActivations
from . import conftest  # noqa: F401  it declares torchvision's operators


def main() -> None:
    from timm.task import ClassificationTask

    from oomph.integrations.timm import guard

    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    task = ClassificationTask(LargeActivations(), nn.functional.mse_loss, verbose=False)
    optimizer = torch.optim.SGD(task.parameters(), lr=0.01)
    guarded = None if kind == "plain" else guard(task, optimizer, record=folder / f"{kind}.jsonl")

    def train(size: int) -> None:
        inputs, targets = torch.randn(size, 8), torch.randn(size, 8)
        if guarded is not None:
            guarded.step(inputs, targets)
        else:
            task(inputs, targets)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()

    train(1)  # torch allocates some memory once
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 400 * MIB, resource.RLIM_INFINITY))
    for _ in range(3):
        train(16)
    if guarded is not None:
        guarded.close()


if __name__ == "__main__":
    main()
