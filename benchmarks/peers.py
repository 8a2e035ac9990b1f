"""Asks what people use today about every configuration that was measured, and prints the table of docs/accuracy.md.

    python benchmarks/peers.py --out peers.jsonl [name …]

Each peer is used as its own documentation says, with the reading of its answer that suits it best, and oomph beside
them. Each configuration has a process of its own, two at a time. What is in the results file already is not asked
again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

SIDE_BY_SIDE = 2
PATIENCE = 600  # seconds for all answers about one configuration
# Bytes that will be allocated, and the cap of the allocator that the answer amounts to.
Answer = tuple[int, int]


@contextmanager
def pretending(config: Any) -> Iterator[tuple[Any, Any]]:
    """The model and its optimizer on fake tensors, and a context of such.

    On the CPU: torch won't run backward on fake CUDA tensors where there is no CUDA. Some models read numbers off their
    weights while they are built; for peers as for oomph those are built for real and turned into fake ones.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    from oomph.patches import convert_model
    from oomph.trace._build import build_model

    mode = FakeTensorMode()
    model = build_model(config.job, mode)
    with mode:
        convert_model(model, config.settings)
        yield model, config.job.optimizer(model)


def autocast(config: Any) -> Any:
    """The precision that the settings ask for, on the CPU's key."""
    import torch

    dtype = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}.get(config.settings.precision)
    return torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None)


def train(config: Any, model: Any, optimizer: Any, after_piece: Callable[[], None]) -> None:
    """Two steps: the second has the optimizer's state."""
    from oomph.patches import convert_batch

    pieces = config.settings.micro_batch_sizes
    for _ in range(2):
        for count in pieces:
            batch = convert_batch(config.job.batch(count, config.settings.size), config.settings)
            with autocast(config):
                loss = config.job.run(model, batch) / len(pieces)
            loss.backward()
            del batch, loss
            after_piece()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def ask_memtracker(config: Any) -> Answer:
    """torch.distributed._tools.mem_tracker under fake tensors."""
    from torch.distributed._tools.mem_tracker import MemTracker

    with pretending(config) as (model, optimizer):
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            train(config, model, optimizer, tracker.reset_mod_stats)
    peak = sum(snapshot["Total"] for snapshot in tracker.get_tracker_snapshot("peak").values())
    return peak, peak


def ask_fake_tensors(config: Any) -> Answer:
    """The storages that are alive at once under fake tensors, and nothing else."""
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    alive: set[int] = set()
    total = peak = 0

    def forget(key: int, size: int) -> None:
        nonlocal total
        alive.discard(key)
        total -= size

    def count(tensor: Tensor) -> None:
        nonlocal total, peak
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in alive:
            alive.add(key)
            total += storage.nbytes()
            peak = max(peak, total)
            weakref.finalize(storage, forget, key, storage.nbytes())

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            out = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, Tensor):
                    count(leaf)
            return out

    with pretending(config) as (model, optimizer):
        for tensor in (*model.parameters(), *model.buffers()):
            count(tensor)
        with Counter():  # type: ignore[no-untyped-call]
            train(config, model, optimizer, lambda: None)
    return peak, peak


def ask_torchinfo(config: Any) -> Answer:
    """The "estimated total size" of torchinfo's summary in training mode."""
    from torch import Tensor
    from torchinfo import summary

    from oomph.patches import convert_batch

    with pretending(config) as (model, _):
        batch = config.job.batch(config.settings.micro_batch_sizes[0], config.settings.size)
        inputs = convert_batch(batch, config.settings)[0]
        with autocast(config):
            found = summary(
                model, input_data=[inputs] if isinstance(inputs, Tensor) else inputs, mode="train", verbose=0
            )
    total = found.total_input + found.total_output_bytes + found.total_param_bytes
    return total, total


def ask_four_times(config: Any) -> Answer:
    """Weights, gradients and Adam's two moments: four times the weights."""
    with pretending(config) as (model, _):
        total = 4 * sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return total, total


def ask_preflight(config: Any) -> Answer:
    """torch-preflight's guard with an example input: without its CUDA context, which no allocator's cap covers.

    What it adds for fragmentation counts towards the cap, not towards what is allocated.
    """
    from torch_preflight import VRAMGuard

    from oomph.patches import convert_batch, convert_model

    model = config.job.model().train()
    convert_model(model, config.settings)
    batch = convert_batch(config.job.batch(config.settings.micro_batch_sizes[0], config.settings.size), config.settings)
    precision = {"fp32": "fp32", "bf16": "pure-bf16"}.get(config.settings.precision, "amp")
    guard = VRAMGuard(
        model,
        optimizer=config.job.optimizer(model),
        batch_size=config.settings.micro_batch_sizes[0],
        example_input=batch[0],
        precision=precision,
        max_vram="139GiB",
    )
    if guard.activation_source == "unknown":
        raise RuntimeError("the activations could not be measured")
    with guard:
        found = guard.report.breakdown
    cap = found.total - found.cuda_context
    return cap - found.fragmentation, cap


def ask_oomph(config: Any) -> Answer:
    """oomph: what it says is allocated, and the high of `needed`."""
    import oomph

    found = oomph.predict(config.job, config.settings, "H200")
    return int(found.allocated.value), int(found.needed.high)


PEERS: dict[str, tuple[str, Callable[[Any], Answer]]] = {
    "oomph": ("oomph", ask_oomph),
    "memtracker": ("torch's MemTracker", ask_memtracker),
    "fake": ("a count of fake tensors", ask_fake_tensors),
    "preflight": ("torch-preflight", ask_preflight),
    "torchinfo": ("torchinfo", ask_torchinfo),
    "weights": ("4 × the weights", ask_four_times),
}


def one(name: str, peers: list[str]) -> None:
    """Ask about one configuration in this process and print the answers."""
    import torch
    from zoo import configs

    torch.set_num_threads(1)
    config = configs()[name]
    for peer in peers:
        torch.manual_seed(0)
        try:
            allocated, cap = PEERS[peer][1](config)
            row: dict[str, Any] = {"allocated": allocated, "cap": cap}
        except Exception as error:  # noqa: BLE001  a failure is an answer too
            row = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]}
        print(json.dumps({"peer": peer, "name": name, **row}), flush=True)


def ask(name: str, peers: list[str]) -> list[dict[str, Any]]:
    """Ask about one configuration in a process of its own."""
    command = [sys.executable, __file__, "one", name, *peers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    rows = [json.loads(line) for line in output.splitlines() if line.startswith('{"peer"')]
    silent = set(peers) - {row["peer"] for row in rows}
    return rows + [{"peer": peer, "name": name, "error": "no answer from the process"} for peer in sorted(silent)]


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """One line a peer: how far off, how often without an answer, and how often a cap at the answer is too small."""
    from zoo import truths

    measured = truths()
    yield "| | median error | 95th percentile | largest | no answer | dies under a cap at its answer |"
    yield "|---|---|---|---|---|---|"
    for peer, (words, _) in PEERS.items():
        own = [row for row in rows if row["peer"] == peer]
        found = [row for row in own if "allocated" in row]
        if not found:
            yield f"| {words} | | | | {len(own)} of {len(own)} | |"
            continue
        errors = sorted(abs(100 * (row["allocated"] / measured[row["name"]]["allocated"] - 1)) for row in found)
        # The smallest cap is known to within a grain, and peers get the benefit of it.
        deaths = sum(row["cap"] < measured[row["name"]]["needed"] - measured[row["name"]]["grain"] for row in found)
        figures = (statistics.median(errors), errors[int(0.95 * len(errors))], errors[-1])
        yield (
            f"| {words} | "
            + " | ".join(f"{figure:.{3 if figure < 0.1 else 1}f} %" for figure in figures)
            + f" | {len(own) - len(found)} of {len(own)} | {deaths} of {len(found)} |"
        )


def main() -> None:
    """Ask everybody everything, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    from zoo import truths

    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(row["peer"], row["name"]) for row in rows}
    waiting = {
        name: [peer for peer in PEERS if (peer, name) not in done]
        for name in truths()
        if not options.names or name in options.names
    }
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool, options.out.open("a") as out:
        for found in pool.map(ask, *zip(*((name, peers) for name, peers in waiting.items() if peers), strict=True)):
            out.writelines(json.dumps(row) + "\n" for row in found)
            out.flush()
            rows += found
    print("\n".join(table(rows)))


if __name__ == "__main__":
    one(sys.argv[2], sys.argv[3:]) if sys.argv[1:2] == ["one"] else main()
