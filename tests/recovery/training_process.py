"""A training loop in its own process: `python -m tests.recovery.training_process KIND FOLDER`."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

import oomph
from oomph.machine import peak_rss_bytes, rss_bytes
from oomph.units import MIB

from .nets import guard_of, plain_batch, plain_net


class LargeActivations(nn.Module):
    """Keeps 4 MiB for each sample and layer, in blocks so large that malloc returns them to the system."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1).expand(-1, 131_072, -1)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.mean(1)


def address_space_limit(folder: Path) -> None:
    """Train under a limit of the address space that the whole batch exceeds."""
    _train_under_limit(folder, resource.RLIMIT_AS, 0)


def data_limit(folder: Path) -> None:
    """Train under a limit of data (`ulimit -d`) that the whole batch exceeds."""
    _train_under_limit(folder, resource.RLIMIT_DATA, 5)


def _train_under_limit(folder: Path, limit: int, statm_field: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    guard = guard_of(LargeActivations())
    guard.step((torch.randn(1, 8), torch.randn(1, 8)))  # torch allocates some memory once
    used = int(Path("/proc/self/statm").read_text().split()[statm_field]) * resource.getpagesize()
    resource.setrlimit(limit, (used + 400 * MIB, resource.RLIM_INFINITY))
    reports = [guard.step((torch.randn(16, 8), torch.randn(16, 8))) for _ in range(2)]
    steps = [{"micro_batches": report.micro_batches, "retries": report.retries} for report in reports]
    (folder / "out.json").write_text(json.dumps(steps))


def budget(folder: Path) -> None:
    """Train and validate within the guard's budget of RAM, without any other limit."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = LargeActivations()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # the first optimizer imports a large part of torch
    limit = rss_bytes() + 500 * MIB
    guard = guard_of(net, optimizer=optimizer, budget=limit)
    reports = [guard.step((torch.randn(16, 8), torch.randn(16, 8))) for _ in range(2)]
    batches = [(torch.randn(58, 8), torch.randn(58, 8))]
    sizes = guard.evaluate(batches, lambda model, batch: len(model(batch[0])))
    outcome = {
        "micro_batches": [report.micro_batches for report in reports],
        "validation_sizes": sizes,
        "bytes_over_budget": peak_rss_bytes() - limit,
    }
    (folder / "out.json").write_text(json.dumps(outcome))


def _train_until_killed(folder: Path) -> None:
    """Save every three steps, and resume from the saved file."""
    torch.set_num_threads(1)
    net = plain_net()
    with oomph.Recorder(folder / "run.jsonl") as recorder:
        guard = guard_of(net, optimizer=torch.optim.AdamW(net.parameters(), lr=0.01), recorder=recorder)
        if (folder / "last.pt").exists():
            guard.load(folder / "last.pt")
        print("steps", guard.steps, flush=True)
        while True:
            guard.step(plain_batch(seed=guard.steps))
            if guard.steps % 3 == 0:
                guard.save(folder / "last.pt")


def fork_for_each_line(folder: Path) -> None:
    """Start the run again for each line of the standard input; torch is imported only once."""
    torch.set_num_threads(1)
    net = plain_net()
    guard_of(net, optimizer=torch.optim.AdamW(net.parameters(), lr=0.01)).step(plain_batch())
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            _train_until_killed(folder)
        print("pid", child, flush=True)
        os.waitpid(child, 0)


KINDS = {function.__name__: function for function in (address_space_limit, data_limit, budget, fork_for_each_line)}

if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(sys.argv[2]))
