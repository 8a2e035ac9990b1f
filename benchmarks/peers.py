"""Compare other memory estimators on every measured configuration and print the table of docs/accuracy.md.

    python benchmarks/peers.py --out peers.jsonl [name …]

Each estimator is used as its documentation says, and its result is interpreted in its favor. Each configuration runs
in its own process, two at a time. Results that are already in the file are not computed again.
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

MAX_PROCESSES = 2
TIMEOUT_SECONDS = 600  # for all estimates of one configuration
# Allocated bytes, and the allocator cap that follows from the estimate.
PeerEstimate = tuple[int, int]


@contextmanager
def fake_model(config: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the model and its optimizer on fake tensors, inside a FakeTensorMode.

    They are CPU tensors, because torch can't run backward on fake CUDA tensors without CUDA. Models that read their
    weights while they are built are built on real tensors first, for the other estimators as for oomph.
    """
    from oomph.patches import convert_model
    from oomph.trace._fake_job import build_model
    from oomph.trace.fake import DataAssumptions, FakeWorld

    world = FakeWorld(DataAssumptions())
    model = build_model(config.job, world)
    with world.mode:
        convert_model(model, config.settings)
        yield model, config.job.optimizer(model)


def train(config: Any, model: Any, optimizer: Any, after_micro_batch: Callable[[], None]) -> None:
    """Run two steps: the second has the optimizer's state."""
    from oomph.patches import autocast, convert_batch

    sizes = config.settings.micro_batch_sizes
    for _ in range(2):
        for count in sizes:
            batch = convert_batch(config.job.batch(count, config.settings.size), config.settings)
            with autocast(config.settings.precision, "cpu"):
                loss = config.job.run(model, batch) / len(sizes)
            loss.backward()
            del batch, loss
            after_micro_batch()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def estimate_memtracker(config: Any) -> PeerEstimate:
    """Run torch.distributed._tools.mem_tracker under fake tensors."""
    from torch.distributed._tools.mem_tracker import MemTracker

    with fake_model(config) as (model, optimizer):
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            train(config, model, optimizer, tracker.reset_mod_stats)
    peak = sum(snapshot["Total"] for snapshot in tracker.get_tracker_snapshot("peak").values())
    return peak, peak


def estimate_fake_tensors(config: Any) -> PeerEstimate:
    """Count the storages that are live at once under fake tensors."""
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    live: set[int] = set()
    total = peak = 0

    def on_free(key: int, size: int) -> None:
        nonlocal total
        live.discard(key)
        total -= size

    def count(tensor: Tensor) -> None:
        nonlocal total, peak
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in live:
            live.add(key)
            total += storage.nbytes()
            peak = max(peak, total)
            weakref.finalize(storage, on_free, key, storage.nbytes())

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            out = func(*args, **(kwargs or {}))
            for leaf in tree_leaves(out):
                if isinstance(leaf, Tensor):
                    count(leaf)
            return out

    with fake_model(config) as (model, optimizer):
        for tensor in (*model.parameters(), *model.buffers()):
            count(tensor)
        with Counter():  # type: ignore[no-untyped-call]
            train(config, model, optimizer, lambda: None)
    return peak, peak


def estimate_torchinfo(config: Any) -> PeerEstimate:
    """Return the "estimated total size" of torchinfo's summary in training mode."""
    from torch import Tensor
    from torchinfo import summary

    from oomph.patches import autocast, convert_batch

    with fake_model(config) as (model, _):
        batch = config.job.batch(config.settings.micro_batch_sizes[0], config.settings.size)
        inputs = convert_batch(batch, config.settings)[0]
        with autocast(config.settings.precision, "cpu"):
            result = summary(
                model, input_data=[inputs] if isinstance(inputs, Tensor) else inputs, mode="train", verbose=0
            )
    total = result.total_input + result.total_output_bytes + result.total_param_bytes
    return total, total


def estimate_four_times(config: Any) -> PeerEstimate:
    """Return four times the weights: weights, gradients and Adam's two moments."""
    with fake_model(config) as (model, _):
        total = 4 * sum(weight.numel() * weight.element_size() for weight in model.parameters())
    return total, total


def estimate_preflight(config: Any) -> PeerEstimate:
    """Run torch-preflight's guard with an example input, without its CUDA context, which no allocator cap covers.

    Its allowance for fragmentation counts towards the cap, not towards the allocated bytes.
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
        breakdown = guard.report.breakdown
    cap = breakdown.total - breakdown.cuda_context
    return cap - breakdown.fragmentation, cap


def estimate_oomph(config: Any) -> PeerEstimate:
    """Return oomph's `allocated` and the high of `needed`."""
    import oomph

    prediction = oomph.predict(config.job, config.settings, "H200")
    return int(prediction.allocated.value), int(prediction.needed.high)


PEERS: dict[str, tuple[str, Callable[[Any], PeerEstimate]]] = {
    "oomph": ("oomph", estimate_oomph),
    "memtracker": ("torch's MemTracker", estimate_memtracker),
    "fake": ("live fake tensors", estimate_fake_tensors),
    "preflight": ("torch-preflight", estimate_preflight),
    "torchinfo": ("torchinfo", estimate_torchinfo),
    "weights": ("4 × the weights", estimate_four_times),
}


def estimate_here(name: str, peers: list[str]) -> None:
    """Print the estimates of one configuration, computed in this process."""
    import torch
    from zoo import configs

    torch.set_num_threads(1)
    config = configs()[name]
    for peer in peers:
        torch.manual_seed(0)
        try:
            allocated, cap = PEERS[peer][1](config)
            row: dict[str, Any] = {"allocated": allocated, "cap": cap}
        except Exception as error:  # noqa: BLE001  a failure is a result too
            row = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]}
        print(json.dumps({"peer": peer, "name": name, **row}), flush=True)


def estimate(name: str, peers: list[str]) -> list[dict[str, Any]]:
    """Return the estimates of one configuration, computed in a new process."""
    command = [sys.executable, __file__, "one", name, *peers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    rows = [json.loads(line) for line in output.splitlines() if line.startswith('{"peer"')]
    missing = set(peers) - {row["peer"] for row in rows}
    return rows + [{"peer": peer, "name": name, "error": "no answer from the process"} for peer in sorted(missing)]


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield one line per estimator: its errors, missing results, and how often a cap at its estimate is too small."""
    from zoo import measurements

    measured = measurements()
    yield "| | median error | 95th percentile | largest | no result | fails under a cap at its result |"
    yield "|---|---|---|---|---|---|"
    for peer, (title, _) in PEERS.items():
        peer_rows = [row for row in rows if row["peer"] == peer]
        estimates = [row for row in peer_rows if "allocated" in row]
        if not estimates:
            yield f"| {title} | | | | {len(peer_rows)} of {len(peer_rows)} | |"
            continue
        errors = sorted(abs(100 * (row["allocated"] / measured[row["name"]]["allocated"] - 1)) for row in estimates)
        # The measured smallest cap is uncertain by `grain`, which counts in the estimator's favor.
        failures = sum(
            row["cap"] < measured[row["name"]]["needed"] - measured[row["name"]]["grain"] for row in estimates
        )
        columns = (statistics.median(errors), errors[int(0.95 * len(errors))], errors[-1])
        yield (
            f"| {title} | "
            + " | ".join(f"{error:.{3 if error < 0.1 else 1}f} %" for error in columns)
            + f" | {len(peer_rows) - len(estimates)} of {len(peer_rows)} | {failures} of {len(estimates)} |"
        )


def main() -> None:
    """Compute the missing estimates and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    from zoo import measurements

    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {(row["peer"], row["name"]) for row in rows}
    waiting = {
        name: [peer for peer in PEERS if (peer, name) not in done]
        for name in measurements()
        if not options.names or name in options.names
    }
    with ThreadPoolExecutor(MAX_PROCESSES) as pool, options.out.open("a") as out:
        calls = zip(*((name, peers) for name, peers in waiting.items() if peers), strict=True)
        for estimates in pool.map(estimate, *calls):
            out.writelines(json.dumps(row) + "\n" for row in estimates)
            out.flush()
            rows += estimates
    print("\n".join(table(rows)))


if __name__ == "__main__":
    estimate_here(sys.argv[2], sys.argv[3:]) if sys.argv[1:2] == ["one"] else main()
