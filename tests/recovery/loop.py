"""A training loop of its own process: `python -m tests.recovery.loop KIND FOLDER`."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import oomph
from oomph.machine import peak_rss_bytes
from oomph.monitor import Recorder
from oomph.recovery._meter import resident
from oomph.units import MIB

from .nets import plain_batch, plain_net


class Hungry(nn.Module):
    """Keeps 4 MiB for each sample and layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1).expand(-1, 131_072, -1)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.mean(1)


def limited(folder: Path) -> None:
    """Under a limit of the address space that the whole batch breaks."""
    _limited(folder, resource.RLIMIT_AS, 0)


def limited_data(folder: Path) -> None:
    """Under a limit of data (`ulimit -d`) that it breaks."""
    _limited(folder, resource.RLIMIT_DATA, 5)


def _limited(folder: Path, limit: int, field: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Hungry()
    guard = oomph.guard(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=nn.functional.mse_loss)
    guard.step((torch.randn(1, 8), torch.randn(1, 8)))  # what torch itself allocates once
    used = int(Path("/proc/self/statm").read_text().split()[field]) * resource.getpagesize()
    resource.setrlimit(limit, (used + 400 * MIB, resource.RLIM_INFINITY))
    reports = [guard.step((torch.randn(16, 8), torch.randn(16, 8))) for _ in range(3)]
    (folder / "out.json").write_text(json.dumps([[report.pieces, report.retries] for report in reports]))


def budgeted(folder: Path) -> None:
    """Without any limit but the guard's own budget of RAM."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Hungry()
    guard = oomph.guard(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        loss=nn.functional.mse_loss,
        budget=resident() + 500 * MIB,
    )
    reports = [guard.step((torch.randn(16, 8), torch.randn(16, 8))) for _ in range(3)]
    sizes = guard.evaluate([(torch.randn(58, 8), torch.randn(58, 8))] * 2, lambda model, piece: len(model(piece[0])))
    peak = peak_rss_bytes()
    assert guard.options.budget_bytes is not None
    over = peak - guard.options.budget_bytes
    out = {"pieces": [report.pieces for report in reports], "validation": sizes, "over": over}
    (folder / "out.json").write_text(json.dumps(out))


def endless(folder: Path) -> None:
    """Saves every few steps, resumes from what was saved, and writes its Record."""
    torch.set_num_threads(1)
    net = plain_net()
    with Recorder(folder / "run.jsonl") as recorder:
        guard = oomph.guard(
            model=net,
            optimizer=torch.optim.AdamW(net.parameters(), lr=0.01),
            loss=nn.functional.mse_loss,
            recorder=recorder,
        )
        if (folder / "last.pt").exists():
            guard.load(folder / "last.pt")
        print("ready", guard.steps, flush=True)
        while True:
            guard.step(plain_batch(seed=guard.steps))
            if guard.steps % 3 == 0:
                guard.save(folder / "last.pt")


def again(folder: Path) -> None:
    """Starts the endless run anew for each line that comes in: importing torch once is enough for twenty of them."""
    torch.set_num_threads(1)
    net = plain_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss).step(plain_batch())
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            endless(folder)
        print("started", child, flush=True)
        os.waitpid(child, 0)


if __name__ == "__main__":
    {f.__name__: f for f in (limited, limited_data, budgeted, endless, again)}[sys.argv[1]](Path(sys.argv[2]))
