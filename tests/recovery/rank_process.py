"""Ranks of runs with several, as processes: `python -m tests.recovery.rank`, which reads what to start."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import oomph
from oomph.recovery import Guard, _overlap
from oomph.recovery._ranks import DdpRanks

from .faults import CUDA, FaultAt, FaultIn

STEPS = 3
_overlap._BUCKET = 64  # bytes, so that there are several


class Net(nn.Module):
    """With a buffer that is averaged, and a fault in the middle of its backward on demand."""

    def __init__(self) -> None:
        super().__init__()
        # No bias before the norm: its gradient would be nothing but rounding, which AdamW makes large.
        self.first, self.norm, self.second = nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.unused = nn.Linear(2, 2)
        self.fail_in_backward = self.twice = self.longer = False

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.first(x)))
        if self.twice:  # gradients arrive after each of them
            x = x + sum(checkpoint(self._wide, x, use_reentrant=True) for _ in range(2))
        if self.fail_in_backward:
            self.fail_in_backward = False
            x.register_hook(self._fail)
        found: Tensor = self.second(x)
        return self.unused(found) if self.longer else found

    def _wide(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(x) @ self.second.weight
        return found

    def _fail(self, gradient: Tensor) -> None:
        del gradient
        raise torch.OutOfMemoryError(CUDA)


def build(*, ddp: bool = True, **options: Any) -> tuple[Net, Guard]:
    torch.manual_seed(0)
    net = Net()
    model = DistributedDataParallel(net, find_unused_parameters=True) if ddp else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    return net, oomph.guard(model=model, optimizer=optimizer, loss=nn.functional.mse_loss, clip=1.0, **options)


def batch(rank: int, step: int, samples: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(samples, 4, generator=generator), torch.randn(samples, 2, generator=generator)


def train(where: str, rank: int, size: int, *, steps: int = STEPS, every: int = 1, **options: Any) -> dict[str, Any]:
    """Some steps with a fault on the last rank in the second; what came out."""
    net, guard = build(**options)
    net.twice = where == "twice"
    assert isinstance(guard._ranks, DdpRanks)
    overlap = guard._ranks.overlap
    reports, overlapped = [], []
    for step in range(steps):
        net.first.requires_grad_(where != "thaw" or step > 1)
        if where == "crowded" and step == 1:
            overlap.is_crowded, overlap._looked = lambda: rank == 0, 0.0
        own = batch(rank, step, 8 + (rank == 0 and step == 1))
        unlucky = step == 1 and rank == size - 1
        if unlucky and where == "backward":
            net.fail_in_backward = True
        if unlucky and where == "forward":
            with _Once("addmm"):
                reports.append(guard.step(own))
        elif unlucky and where == "optimizer":
            with _Once("addcdiv"):
                reports.append(guard.step(own))
        else:
            reports.append(guard.step(own, update=(step + 1) % every == 0))
        used = overlap.used
        overlapped.append(used is not None)
        if used is not None and every == 1:
            assert used.early == len(used._buckets) > 2, "buckets were sent after backward"
    sizes: list[int] = []
    if where == "validation":
        loader = [batch(rank, step) for step in range(2)]
        with _Once("addmm") if rank == size - 1 else FaultAt():
            sizes = guard.evaluate(loader, lambda model, piece: len(model(piece[0])))
    guard.close()
    return {
        "state": [one.double().flatten().tolist() for one in net.state_dict().values()],
        "pieces": [report.pieces for report in reports],
        "retries": [report.retries for report in reports],
        "overlapped": overlapped,
        "samples": sum(sizes),
        "unused": net.unused.weight.grad is None,
    }


class _Once(FaultIn):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.raised:
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


def recover(rank: int, size: int, folder: Path) -> None:
    places = ("nowhere", "forward", "backward", "optimizer", "validation")
    found = {where: train(where, rank, size) for where in places}
    found["after"] = train("backward", rank, size, overlap=False)
    found["calm"] = train("backward", rank, size, steps=6, calm=1)
    found["twice"] = train("twice", rank, size)
    found["twice after"] = train("twice", rank, size, overlap=False)
    found["crowded"] = train("crowded", rank, size)
    found["thaw"] = train("thaw", rank, size, steps=4)
    found["thaw after"] = train("thaw", rank, size, steps=4, overlap=False)
    found["accumulated"] = train("nowhere", rank, size, steps=6, every=2)
    found["accumulated after"] = train("nowhere", rank, size, steps=6, every=2, overlap=False)
    found["pieces"] = train("nowhere", rank, size, pieces=2)
    found["pieces after"] = train("nowhere", rank, size, pieces=2, overlap=False)
    found["plain"] = {"state": plain(rank)}
    (folder / f"{rank}.json").write_text(json.dumps(found))


def plain(rank: int, *, longer: bool = False) -> list[list[float]]:
    """The same steps by DDP itself."""
    torch.manual_seed(0)
    net = Net()
    net.longer = longer
    model = DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(STEPS):
        inputs, targets = batch(rank, step, 8 + (rank == 0 and step == 1 and not longer))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return [one.double().flatten().tolist() for one in net.parameters()]


def killed(rank: int, size: int, folder: Path) -> None:
    """The last rank is killed in the middle of a step; the first has saved before."""
    _, guard = build(patience=8.0)
    guard.step(batch(rank, 0))
    if rank == 0:
        guard.save(folder / "last.pt")
    dist.barrier()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    guard.step(batch(rank, 1))


def hung(rank: int, size: int, folder: Path) -> None:
    """The last rank stops in the middle of a step: no socket is closed, no exception comes."""
    del folder
    _, guard = build(patience=3.0)
    guard.step(batch(rank, 0))
    if rank == size - 1:
        print("stopping", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    guard.step(batch(rank, 1))


def gives_up(rank: int, size: int, folder: Path) -> None:
    """The last rank raises an error of its own."""
    del folder
    _, guard = build()
    guard.step(batch(rank, 0))
    if rank == size - 1:
        guard.step(batch(rank, 1), forward=_broken)
    guard.step(batch(rank, 1))


def _broken(model: nn.Module, piece: Any) -> Tensor:
    del model, piece
    raise ValueError("the label is 7")


def sharded(rank: int, size: int, folder: Path) -> None:
    """FSDP2 with a fault in the backward of the last rank, while the others wait in a collective."""
    del folder
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    net = Net()
    mesh = init_device_mesh("cpu", (size,))
    for part in (net.first, net.second):
        fully_shard(part, mesh=mesh)
    fully_shard(net, mesh=mesh)
    guard = oomph.guard(
        model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=nn.functional.mse_loss, pieces=2
    )
    guard.step(batch(rank, 0))
    print("one step done", flush=True)
    net.fail_in_backward = rank == size - 1
    guard.step(batch(rank, 1))


def refused(rank: int, size: int, folder: Path) -> None:
    """What can't be guarded is refused by name."""
    del size

    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    said = []
    for wrap in ("sync", "hook", "sparse", "none"):
        model: nn.Module = nn.Embedding(8, 2, sparse=True) if wrap == "sparse" else Net()
        wrapped: nn.Module = model if wrap == "none" else DistributedDataParallel(model)
        if wrap == "sync":
            model.add_module("norm", nn.SyncBatchNorm(8))  # after DDP, which refuses it too, but only on the CPU
        if isinstance(wrapped, DistributedDataParallel) and wrap == "hook":
            wrapped.register_comm_hook(None, allreduce_hook)
        try:
            oomph.guard(model=wrapped, optimizer=torch.optim.SGD(wrapped.parameters(), lr=0.1), loss=None)
        except oomph.UsageError as error:
            said.append(str(error))
    (folder / f"refused-{rank}.json").write_text(json.dumps(said))


def sparse(rank: int, size: int, folder: Path) -> None:
    """Gradients that turn out to be sparse."""
    del rank, size, folder
    _, guard = build()
    table = torch.zeros(2, 2)

    def forward(model: nn.Module, piece: Any) -> Tensor:
        rows = nn.functional.embedding(torch.tensor([1]), model.get_parameter("unused.weight"), sparse=True)
        return (model(piece[0]) @ table).sum() + rows.sum()

    guard.step(batch(0, 0), forward=forward)


def sided(rank: int, size: int, folder: Path) -> None:
    """A layer that only the first rank uses, with gradients exchanged during backward and after it."""
    del size
    found: dict[str, Any] = {}
    for way in ("overlap", "after"):
        net, guard = build(overlap=way == "overlap")
        net.longer = rank == 0
        for step in range(STEPS):
            guard.step(batch(rank, step))
        guard.close()
        found[way] = [one.double().flatten().tolist() for one in net.parameters()]
    found["plain"] = plain(rank, longer=rank == 0)
    (folder / f"{rank}.json").write_text(json.dumps(found))


def static(rank: int, size: int, folder: Path) -> None:
    """DDP that was told that its graph never changes, guarded and plain."""
    del size
    found: dict[str, Any] = {}
    for way in ("guarded", "plain"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        model = DistributedDataParallel(net, static_graph=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        guard = oomph.guard(model=model, optimizer=optimizer, loss=nn.functional.mse_loss) if way == "guarded" else None
        for step in range(STEPS):
            if guard is not None:
                with _Once("addmm") if rank == 1 and step == 1 else FaultAt():
                    guard.step(batch(rank, step))
            else:
                optimizer.zero_grad()
                nn.functional.mse_loss(model(batch(rank, step)[0]), batch(rank, step)[1]).backward()
                optimizer.step()
        if guard is not None:
            guard.close()
        found[way] = [one.double().flatten().tolist() for one in net.parameters()]
    (folder / f"{rank}.json").write_text(json.dumps(found))


def asked(rank: int, size: int, folder: Path) -> None:
    """The last rank alone is asked to end, after the last update."""
    _, guard = build(checkpoint=folder / "last.pt")
    with guard.signals():
        for step in range(2):
            guard.step(batch(rank, step))
        if rank == size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
    print("went on", flush=True)


def accumulating(rank: int, size: int, folder: Path) -> None:
    """The last rank never finds memory for the second batch of two that are accumulated."""
    _, guard = build(checkpoint=folder / "last.pt")
    guard.step(batch(rank, 0))
    guard.step(batch(rank, 1), update=False)
    guard.step(batch(rank, 2), forward=_short if rank == size - 1 else None)


def _short(model: nn.Module, piece: Any) -> Tensor:
    del model, piece
    raise torch.OutOfMemoryError(CUDA)


SCENARIOS = {
    function.__name__: function
    for function in (recover, killed, hung, gives_up, sharded, refused, sparse, sided, static, asked, accumulating)
}


def run(scenario: str, rank: int, size: int, port: int, folder: Path) -> int:
    """One rank, from its first to its last word, which go to files of its own."""
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(folder / f"{rank}.{name}", os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
    try:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
        SCENARIOS[scenario](rank, size, folder)
        dist.destroy_process_group()
    except BaseException:  # noqa: BLE001  as the interpreter itself would
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def main() -> None:
    """Forks the ranks of each line that comes in: importing torch once is enough for all of them."""
    torch.set_num_threads(1)
    net = Net()
    oomph.guard(
        model=net, optimizer=torch.optim.AdamW(net.parameters(), lr=0.01), loss=nn.functional.mse_loss, clip=1.0
    ).step(batch(0, 0))
    for line in sys.stdin:
        scenario, size, port, folder = json.loads(line)
        pids = []
        for rank in range(size):
            pids.append(os.fork())
            if pids[-1] == 0:
                os._exit(run(scenario, rank, size, port, Path(folder)))
        print(json.dumps(pids), flush=True)
        for _ in pids:
            pid, status = os.wait()
            print(json.dumps([pids.index(pid), os.waitstatus_to_exitcode(status)]), flush=True)


if __name__ == "__main__":
    main()
