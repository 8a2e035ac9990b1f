"""Ranks of distributed runs: `python -m tests.recovery.rank_process` forks the ranks of each scenario it reads."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import oomph
from oomph.distributed import _watchdog
from oomph.recovery import Guard, _optimizer_step
from oomph.recovery.ranks import _distributed

from .faults import CUDA_OOM, FaultIn

STEPS = 3
_distributed.BUCKET_BYTES = 64  # so that small gradients need several buckets, and some are larger than a bucket


class Net(nn.Module):
    """Has BatchNorm buffers, an unused layer, and on demand an error in the middle of its backward."""

    fails_in_backward = False  # of the class: a retry would restore an attribute of the module
    mean: Tensor  # a buffer that every forward binds anew

    def __init__(self) -> None:
        super().__init__()
        # No bias before the norm: its gradient would be only rounding errors, which AdamW makes large.
        self.first, self.norm, self.second = nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 2)
        self.unused = nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(4))
        self.uses_layer_twice = self.uses_all_layers = False

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean = (self.mean + x.mean(0)) / 2
        x = torch.tanh(self.norm(self.first(x)))
        if self.uses_layer_twice:  # so its gradient arrives several times in a backward
            x = x + sum(checkpoint(self._through_second, x, use_reentrant=True) for _ in range(2))
        if self.fails_in_backward:
            Net.fails_in_backward = False
            x.register_hook(raise_oom)
        outputs: Tensor = self.second(x)
        return self.unused(outputs) if self.uses_all_layers else outputs

    def _through_second(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.second(x) @ self.second.weight
        return outputs


def raise_oom(*_: object) -> None:
    raise torch.OutOfMemoryError(CUDA_OOM)


def build(**options: Any) -> tuple[Net, Guard]:
    torch.manual_seed(0)
    net = Net()
    model = DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    loss = nn.functional.mse_loss
    return net, oomph.guard(model=model, optimizer=optimizer, loss=loss, clip_grad_norm=1.0, **options)


def batch(rank: int, step: int, samples: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(samples, 4, generator=generator), torch.randn(samples, 2, generator=generator)


def uneven_batch(rank: int, step: int) -> tuple[Tensor, Tensor]:
    """Return a batch that has one more sample on the first rank in the second step."""
    return batch(rank, step, 8 + (rank == 0 and step == 1))


def values(tensors: Any) -> list[list[float]]:
    return [tensor.detach().double().flatten().tolist() for tensor in tensors]


def freeze(net: Net, case: str, step: int) -> None:
    """Freeze the first layer in the first two steps, or the last one in every second step."""
    net.first.requires_grad_(case != "unfrozen" or step > 1)
    net.second.requires_grad_(case != "frozen while accumulating" or step % 2 == 0)


def train(case: str, rank: int, size: int, *, steps: int = STEPS, accumulated: int = 1, **options: Any) -> Any:
    """Train some steps, with an error on the last rank in the second one if the case is named after a place."""
    net, guard = build(**options)
    net.uses_layer_twice = case == "layer used twice"
    reports = []
    for step in range(steps):
        freeze(net, case, step)
        is_failing = step == 1 and rank == size - 1
        Net.fails_in_backward = is_failing and case == "backward"
        operation = {"forward": "addmm", "optimizer": "addcdiv"}.get(case)
        with FaultIn(operation, times=1) if is_failing and operation else contextlib.nullcontext():
            reports.append(guard.step(uneven_batch(rank, step), update=(step + 1) % accumulated == 0))
    sizes: list[int] = []
    if case == "validation":
        with FaultIn("addmm", times=1) if rank == size - 1 else contextlib.nullcontext():
            sizes = guard.evaluate([batch(rank, step) for step in range(2)], lambda model, part: len(model(part[0])))
    guard.close()
    return {
        "state": values(net.state_dict().values()),
        "parameters": values(net.parameters()),
        "micro_batches": [report.micro_batches for report in reports],
        "retries": [report.retries for report in reports],
        "validated": sum(sizes),
        "unused_has_no_grad": net.unused.weight.grad is None,
    }


def train_uneven(rank: int, size: int) -> Any:
    """Run out of memory on the last rank, with a batch too small to be split; return the fallbacks."""
    _, guard = build()
    with FaultIn("addmm", times=1) if rank == size - 1 else contextlib.nullcontext():
        report = guard.step(batch(rank, 0, 2 if rank == size - 1 else 8))
    guard.close()
    return [fallback.detail for fallback in report.fallbacks]


def reference(rank: int, case: str = "", *, steps: int = STEPS, accumulated: int = 1, sizes: Any = ()) -> Any:
    """Train without the guard: average the gradients by hand, and split batches into the given sizes."""
    torch.manual_seed(0)
    net = Net()
    net.uses_layer_twice = case == "layer used twice"
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(steps):
        freeze(net, case, step)
        group = range(step - step % accumulated, step - step % accumulated + accumulated)
        total = sum(len(uneven_batch(rank, member)[0]) for member in group)
        inputs, targets = uneven_batch(rank, step)
        micro_batches = sizes[step] if sizes else 1
        for part in zip(inputs.tensor_split(micro_batches), targets.tensor_split(micro_batches), strict=True):
            (nn.functional.mse_loss(net(part[0]), part[1]) * (len(part[0]) / total)).backward()
        if (step + 1) % accumulated == 0:
            update_by_hand(net, optimizer)
    return values(net.parameters())


def update_by_hand(net: Net, optimizer: torch.optim.Optimizer) -> None:
    for param in net.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad)
            param.grad /= dist.get_world_size()
    for buffer in net.buffers():
        dist.broadcast(buffer, 0)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def ddp_reference(rank: int, *, uses_all_layers: bool = False) -> Any:
    """Train with DistributedDataParallel, without the guard."""
    torch.manual_seed(0)
    net = Net()
    net.uses_all_layers = uses_all_layers
    model = DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(STEPS):
        inputs, targets = uneven_batch(rank, step)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return values(net.parameters())


def write_result(folder: Path, rank: int, result: Any) -> None:
    (folder / f"{rank}.json").write_text(json.dumps(result))


def recover(rank: int, size: int, folder: Path) -> None:
    """Run out of memory on the last rank, in each part of a step."""
    cases = ("undisturbed", "forward", "backward", "optimizer", "validation")
    result = {case: train(case, rank, size) for case in cases}
    result["growing back"] = train("backward", rank, size, steps=6, cooldown_steps=2)
    result["uneven"] = train_uneven(rank, size)
    result["ddp"] = ddp_reference(rank)
    result["split from the second step"] = reference(rank, sizes=(1, 2, 2))
    write_result(folder, rank, result)


def exact(rank: int, size: int, folder: Path) -> None:
    """Compare several kinds of steps with a loop that averages gradients by hand."""
    result = {
        "layer used twice": (train("layer used twice", rank, size), reference(rank, "layer used twice")),
        "unfrozen": (train("unfrozen", rank, size, steps=4), reference(rank, "unfrozen", steps=4)),
        "accumulated": (train("", rank, size, steps=6, accumulated=2), reference(rank, steps=6, accumulated=2)),
        "frozen while accumulating": (
            train("frozen while accumulating", rank, size, steps=4, accumulated=2),
            reference(rank, "frozen while accumulating", steps=4, accumulated=2),
        ),
        "split": (train("", rank, size, micro_batch=5), reference(rank, sizes=(2, 2, 2))),
    }
    write_result(folder, rank, {"exact": result, "resumed": resumed(rank, folder / "last.pt")})


def resumed(rank: int, path: Path) -> Any:
    """Load the first rank's checkpoint on all ranks, which have different random states; return those after it."""
    _, guard = build()
    torch.manual_seed(rank)
    guard.step(batch(rank, 0))
    if rank == 0:
        guard.save(path)
    expected = torch.rand(2).tolist()
    dist.barrier()
    torch.manual_seed(rank or 7)  # the first rank's random state comes from the checkpoint
    guard.load(path)
    guard.close()
    return {"random numbers": torch.rand(2).tolist(), "expected": expected, "steps": guard.steps}


def killed(rank: int, size: int, folder: Path) -> None:
    """Kill the last rank in the middle of a step, after the first one has saved."""
    _, guard = build(rank_timeout=8.0)
    guard.step(batch(rank, 0))
    if rank == 0:
        guard.save(folder / "last.pt")
    dist.barrier()
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    guard.step(batch(rank, 1))


def hung(rank: int, size: int, folder: Path) -> None:
    """Stop the last rank in the middle of a step: no socket is closed, and no exception is raised."""
    del folder
    _, guard = build(rank_timeout=3.0)
    guard.step(batch(rank, 0))
    if rank == size - 1:
        print("stopping", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    guard.step(batch(rank, 1))


def user_error(rank: int, size: int, folder: Path) -> None:
    """Raise an error of the user on the last rank."""
    del folder
    _, guard = build()
    guard.step(batch(rank, 0))
    if rank == size - 1:
        guard.step(batch(rank, 1), forward=failing_forward)
    guard.step(batch(rank, 1))


def predict_error(rank: int, size: int, folder: Path) -> None:
    """Raise an error on the last rank after its step has happened: it can't predict whether larger ones fit."""

    def predict(samples: int) -> int:
        if rank == size - 1 and guard.steps:
            raise ValueError("the predictor failed")
        return samples

    _, guard = build(predict=predict, cooldown_steps=1)
    with FaultIn("addmm", times=1), stays_alive(rank, folder):
        guard.step(batch(rank, 0))
        guard.step(batch(rank, 1))


def empty_batch(rank: int, size: int, folder: Path) -> None:
    """Raise an error on the last rank before its step has begun."""
    _, guard = build()
    with stays_alive(rank, folder):
        guard.step(batch(rank, 0, samples=0 if rank == size - 1 else 8))


@contextlib.contextmanager
def stays_alive(rank: int, folder: Path) -> Iterator[None]:
    """Keep other ranks than the first in the group after an error, so that the first one must learn of it."""
    _watchdog._BEAT_SECONDS, _watchdog._GRACE_SECONDS = 0.05, 0.2
    try:
        yield
    except Exception:
        if rank > 0:
            until = time.monotonic() + 10
            while "rank 1:" not in (folder / "0.err").read_text() and time.monotonic() < until:
                time.sleep(0.01)
        raise


def failing_forward(model: nn.Module, part: Any) -> Tensor:
    del model, part
    raise ValueError("the label is 7")


def exhausted(rank: int, size: int, folder: Path) -> None:
    """Never find memory on the last rank; all ranks try every fallback and stop, and the first one saves."""
    net, guard = build_with_slow_checkpoint(folder)
    guard.step(batch(rank, 0))
    if rank == size - 1:
        net.register_forward_pre_hook(run_out_of_memory)
    guard.step(batch(rank, 1))


def update_exhausted(rank: int, size: int, folder: Path) -> None:
    """Never find memory for the update on any rank: the others give up by themselves while the first one saves."""
    del size
    _, guard = build_with_slow_checkpoint(folder)
    guard.step(batch(rank, 0))
    if rank > 0:
        guard.optimizers[0].register_step_pre_hook(lambda *_: wait_for(folder / "saving"))
    with FaultIn("addcdiv"):
        guard.step(batch(rank, 1))


def build_with_slow_checkpoint(folder: Path) -> tuple[Net, Guard]:
    """Build a guard that saves for longer than a rank may live once another one has given up."""
    _watchdog._BEAT_SECONDS, _watchdog._GRACE_SECONDS = 0.05, 0.2

    def save(guard: Guard) -> None:
        (folder / "saving").touch()
        time.sleep(1)
        guard.save(folder / "last.pt")

    return build(checkpoint=save)


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def run_out_of_memory(module: nn.Module, args: Any) -> None:
    del module, args
    raise torch.OutOfMemoryError(CUDA_OOM)


def accumulating(rank: int, size: int, folder: Path) -> None:
    """Never find memory on the last rank, for the second of two accumulated batches."""
    net, guard = build(checkpoint=folder / "last.pt")
    guard.step(batch(rank, 0))
    guard.step(batch(rank, 1), update=False)
    if rank == 0:
        guard.save(folder / "between.pt")
    if rank == size - 1:
        net.register_forward_pre_hook(run_out_of_memory)
    guard.step(batch(rank, 2))


def build_sharded(size: int, **options: Any) -> tuple[Net, Guard]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    net = Net()
    net.norm.eval()  # statistics are those of a micro-batch
    mesh = init_device_mesh("cpu", (size,))
    for part in (net.first, net.second):
        fully_shard(part, mesh=mesh)
    fully_shard(net, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, clip_grad_norm=1.0, **options)
    return net, guard


def whole_values(net: nn.Module) -> list[list[float]]:
    """Return the values of all shards, on every rank."""
    return values(param.full_tensor() for param in net.parameters())  # type: ignore[attr-defined]


def train_sharded(case: str, rank: int, size: int, **options: Any) -> Any:
    """Train some steps, with an error in the second one on the ranks and at the place that the case names."""
    net, guard = build_sharded(size, **options)
    reports = []
    for step in range(STEPS):
        fails = step == 1 and (rank == size - 1 or case.startswith("all"))
        Net.fails_in_backward = fails and case.endswith("backward")
        operation = {"first forward": "mm", "last forward": "addmm", "reduction": "chunk_cat"}.get(case)
        with FaultIn(operation, times=1) if fails and operation else contextlib.nullcontext():
            reports.append(guard.step(batch(rank, step)))
    guard.close()
    return {
        "parameters": whole_values(net),
        "retries": [report.retries for report in reports],
        "micro_batches": [report.micro_batches for report in reports],
    }


def sharded(rank: int, size: int, folder: Path) -> None:
    """Run out of memory under FSDP2, while the other ranks are about to enter a collective."""
    cases = ("undisturbed", "first forward", "last forward", "last backward", "reduction", "all backward")
    write_result(folder, rank, {case: train_sharded(case, rank, size) for case in cases})


def sharded_limit(rank: int, size: int, folder: Path) -> None:
    """Limit the address space of the last rank after a first step, so that a whole batch doesn't fit there."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    layers = [nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1)]
    net, mesh = nn.Sequential(*layers), init_device_mesh("cpu", (size,))
    for layer in (net[2], net):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)
    data = torch.randn(16_384, 64), torch.randn(16_384, 1)
    guard.step((data[0][:8], data[1][:8]))
    if rank == size - 1:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20, resource.RLIM_INFINITY))
    reports = [guard.step(data) for _ in range(2)]
    guard.close()
    result = {"micro_batches": [r.micro_batches for r in reports], "retries": [r.retries for r in reports]}
    write_result(folder, rank, {**result, "loss": float(reports[-1].loss)})


def sharded_exhausted(rank: int, size: int, folder: Path) -> None:
    """Never find memory on the last rank under FSDP2."""
    net, guard = build_sharded(size, checkpoint=folder / "last")
    guard.step(batch(rank, 0))
    if rank == size - 1:
        net.second.register_forward_pre_hook(run_out_of_memory)
    guard.step(batch(rank, 1))


def sharded_error(rank: int, size: int, folder: Path) -> None:
    """Raise an error of the user's code on the last rank under FSDP2, where the others vote."""
    del folder
    net, guard = build_sharded(size)
    guard.step(batch(rank, 0))
    if rank == size - 1:
        net.second.register_forward_pre_hook(raise_user_error)
    guard.step(batch(rank, 1))


def raise_user_error(module: nn.Module, args: Any) -> None:
    del module, args
    raise ValueError("the label is 7")


def sharded_resumed(rank: int, size: int, folder: Path) -> None:
    """Save after a step, or continue what another number of ranks saved; every rank has the same batches."""
    net, guard = build_sharded(size)
    if (folder / "saved").exists():
        guard.load(folder / "saved")
    else:
        guard.step(batch(0, 0))
        guard.save(folder / "saved")
        guard.save(folder / "saved")  # replaces the first
    guard.step(batch(0, 1))
    guard.close()
    write_result(folder, rank, {"parameters": whole_values(net), "steps": guard.steps})


def rejected(rank: int, size: int, folder: Path) -> None:
    """Create guards of models that can't be guarded."""
    del size
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    messages = {}
    for case in ("sync_batch_norm", "comm_hook", "sparse", "not_wrapped"):
        model: nn.Module = nn.Embedding(8, 2, sparse=True) if case == "sparse" else Net()
        wrapped: nn.Module = model if case == "not_wrapped" else DistributedDataParallel(model)
        if case == "sync_batch_norm":
            model.add_module("norm", nn.SyncBatchNorm(8))  # on the CPU, DDP itself would reject it
        if isinstance(wrapped, DistributedDataParallel) and case == "comm_hook":
            wrapped.register_comm_hook(None, allreduce_hook)
        try:
            oomph.guard(model=wrapped, optimizer=torch.optim.SGD(wrapped.parameters(), lr=0.1), loss=None)
        except oomph.UsageError as error:
            messages[case] = str(error)
    write_result(folder, rank, messages)


def sparse_gradients(rank: int, size: int, folder: Path) -> None:
    """Compute sparse gradients, which no layer announced, in the second step."""
    del rank, size, folder
    _, guard = build()
    guard.step(batch(0, 0))

    def forward(model: nn.Module, part: Any) -> Tensor:
        rows = nn.functional.embedding(torch.tensor([1]), model.get_parameter("unused.weight"), sparse=True)
        return model(part[0]).sum() + rows.sum()

    guard.step(batch(0, 0), forward=forward)


def one_sided_layer(rank: int, size: int, folder: Path) -> None:
    """Use a layer on the first rank only."""
    del size
    net, guard = build()
    net.uses_all_layers = rank == 0
    for step in range(STEPS):
        guard.step(uneven_batch(rank, step))
    guard.close()
    expected = ddp_reference(rank, uses_all_layers=rank == 0)
    write_result(folder, rank, {"guarded": values(net.parameters()), "plain": expected})


def static_graph(rank: int, size: int, folder: Path) -> None:
    """Train a model in DDP with a static graph, with the guard and without; nothing needs a copy of the gradients."""
    del size
    mock.patch.object(_optimizer_step, "GradSnapshot", None).start()
    result: dict[str, Any] = {}
    for case in ("guarded", "plain"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        model = DistributedDataParallel(net, static_graph=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
        guard = (
            oomph.guard(model=model, optimizer=optimizer, loss=nn.functional.mse_loss) if case == "guarded" else None
        )
        for step in range(STEPS):
            if guard is not None:
                with FaultIn("addmm", times=1) if rank == 1 and step == 1 else contextlib.nullcontext():
                    guard.step(batch(rank, step))
            else:
                optimizer.zero_grad()
                nn.functional.mse_loss(model(batch(rank, step)[0]), batch(rank, step)[1]).backward()
                optimizer.step()
        if guard is not None:
            guard.close()
            assert guard.backup_bytes == 0
        result[case] = values(net.parameters())
    write_result(folder, rank, result)


def signaled(rank: int, size: int, folder: Path) -> None:
    """Send SIGTERM to the last rank only, after the last update."""
    _, guard = build(checkpoint=folder / "last.pt")
    with guard.signals():
        for step in range(2):
            guard.step(batch(rank, step))
        if rank == size - 1:
            os.kill(os.getpid(), signal.SIGTERM)
    print("not stopped", flush=True)


SCENARIOS = {
    function.__name__: function
    for function in (
        recover,
        exact,
        killed,
        hung,
        user_error,
        predict_error,
        empty_batch,
        exhausted,
        update_exhausted,
        accumulating,
        sharded,
        sharded_limit,
        sharded_exhausted,
        sharded_error,
        sharded_resumed,
        rejected,
        sparse_gradients,
        one_sided_layer,
        static_graph,
        signaled,
    )
}


def run_rank(scenario: str, rank: int, size: int, port: int, folder: Path) -> int:
    """Run a rank with its output in files, and return its exit code."""
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
    """Fork the ranks of each scenario in the standard input; torch is imported only once."""
    torch.set_num_threads(1)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss).step(batch(0, 0))
    for line in sys.stdin:
        run, scenario, size, port, folder = json.loads(line)
        pids = []
        for rank in range(size):
            pids.append(os.fork())
            if pids[-1] == 0:
                os._exit(run_rank(scenario, rank, size, port, Path(folder)))
        print(json.dumps([run, pids]), flush=True)
        for _ in pids:
            pid, status = os.wait()
            print(json.dumps([run, [pids.index(pid), os.waitstatus_to_exitcode(status)]]), flush=True)


if __name__ == "__main__":
    main()
