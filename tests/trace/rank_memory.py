"""A training step of DDP or FSDP2 on real tensors: `python -m tests.trace.rank_memory` prints the bytes of each rank.

Ranks are processes with gloo, or one process in torch's fake process group. The bytes are those that torch's profiler
saw its CPU allocator hand out: the most that were live at once in the steps, and those that are live after them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import oomph

SAMPLES, STEPS, WIDTH, BLOCKS = 64, 3, 250, 3  # a width that 4 and 8 ranks don't divide


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(torch.tanh(self.wide(self.norm(x))))


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, WIDTH), *(Block() for _ in range(BLOCKS)), nn.Linear(WIDTH, 8))


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), foreach=False)


def batch(samples: int, size: object = 0) -> tuple[Tensor, Tensor]:
    del size
    return torch.randn(samples, 32), torch.randn(samples, 8)


def job() -> oomph.Job:
    return oomph.Job(model=build, batch=batch, loss=nn.functional.mse_loss, optimizer=optimizer)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, micro_batches: int) -> None:
    for _ in range(STEPS):
        for _ in range(micro_batches):
            inputs, targets = batch(SAMPLES // micro_batches)
            loss = nn.functional.mse_loss(model(inputs), targets)
            (loss / micro_batches).backward()
            del inputs, targets, loss
        optimizer.step()
        optimizer.zero_grad()


def wrap(model: nn.Module, parallel: str, size: int) -> nn.Module:
    if parallel == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    for block in model.children():
        if isinstance(block, Block):
            fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def memory_events(profile: Any) -> list[tuple[int, int]]:
    """Return address and bytes of each allocation in the order of time; a release has negative bytes."""
    found = []
    waiting = list(profile.profiler.kineto_results.experimental_event_tree())
    while waiting:
        event = waiting.pop()
        waiting += event.children
        if event.name == "[memory]":
            found.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    return [(address, size) for _, address, size in sorted(found)]


def measure(work: Callable[[], Any], live: dict[int, int]) -> tuple[Any, int]:
    """Return the result of a function and the most bytes that were live at once; `live` has bytes by address.

    The profiler doesn't see what a thread of gloo releases; that such memory is free shows when it is handed out again.
    """
    with torch.profiler.profile(profile_memory=True) as profile:
        result = work()
    peak = 0
    for address, size in memory_events(profile):
        if size > 0:
            end = address + size
            for start in [start for start, length in live.items() if start < end and address < start + length]:
                del live[start]
            live[address] = size
        else:
            live.pop(address, None)
        peak = max(peak, sum(live.values()))
    return result, peak


def run(parallel: str, backend: str, rank: int, size: int, micro_batches: int) -> dict[str, int]:
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=size)
    else:
        dist.init_process_group(backend, init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size)

    def prepare() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = wrap(build(), parallel, size)
        return model, optimizer(model)

    live: dict[int, int] = {}
    (model, updates), _ = measure(prepare, live)
    _, peak = measure(lambda: train(model, updates, micro_batches), live)
    dist.destroy_process_group()
    return {"peak": peak, "live": sum(live.values())}


if __name__ == "__main__":
    parallel, backend, size, micro_batches = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(run(parallel, backend, int(os.environ["RANK"]), size, micro_batches)) + "\n")
    sys.stdout.flush()
    os._exit(0)  # a thread of gloo that frees tensors while Python ends may abort the process (torch 2.13)
