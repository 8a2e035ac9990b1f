"""Trains under a limit of the address space: `python -m tests.integrations.accelerate_process plain|guarded FOLDER`."""

from __future__ import annotations

import contextlib
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from oomph.units import MIB

from ..recovery.training_process import LargeActivations


def main() -> None:
    import accelerate

    from oomph.integrations.accelerate import guard

    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    accelerator = accelerate.Accelerator(cpu=True)
    net: Any = LargeActivations()
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01))
    loss, record = nn.functional.mse_loss, folder / f"{kind}.jsonl"
    with contextlib.ExitStack() as stack:
        guarded: Any = None
        if kind == "guarded":
            guarded = stack.enter_context(
                guard(accelerator, model=model, optimizer=optimizer, loss=loss, record=record)
            )

        def train(size: int) -> None:
            inputs, targets = torch.randn(size, 8), torch.randn(size, 8)
            if guarded is not None:
                guarded.step((inputs, targets))
            else:
                accelerator.backward(loss(model(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()

        train(1)  # torch allocates some memory once
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 400 * MIB, resource.RLIM_INFINITY))
        for _ in range(3):
            train(16)


if __name__ == "__main__":
    main()
