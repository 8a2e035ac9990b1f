"""Measure what the guard costs when nothing fails, and what it saves when memory is short.

    python benchmarks/guard.py --out guard.json            # on a GPU if there is one
    python benchmarks/guard.py --out guard.json --quick    # small, for the CPU
    python benchmarks/guard.py --only overhead --only detector

overhead: blocks of guarded steps between blocks of two plain loops, in one process, with the same micro-batches; the
median of the ratios of neighboring blocks, and how far the two plain loops, which do the same, are apart. With fused
optimizers, which need no backup, and with others, whose backup is part of the difference.
detector: the same for YOLOv5n, with clipping and an EMA in both loops.
capped: the same work under 60 % of what the plain loop needs: with the guard, by halving the micro-batch for good as
composer does, and by restarting with a batch a tenth smaller as accelerate does, each in its own process; and a run
that ran out of memory, compared with an undisturbed one in the same micro-batches.
ranks: two processes on the CPU, plain DDP beside the guard.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
import oomph
from oomph import detect

LOSS = nn.functional.cross_entropy
CAP_FRACTION = 0.6
Loop = Callable[[], object]


class Block(nn.Module):
    """A residual block with GroupNorm, so that micro-batches are exact."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.GroupNorm(8, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def residual_net(width: int, depth: int, device: str) -> nn.Module:
    """Build a residual net, always with the same weights."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    layers += [Block(width) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)).to(device)


def batch_norm_net(width: int, depth: int, device: str) -> nn.Module:
    """Build a net with many small tensors: three parameters and three buffers per layer."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)).to(device)


def random_batch(samples: int, size: int, device: str) -> tuple[Tensor, Tensor]:
    """Return random images and classes."""
    return torch.randn(samples, 3, size, size, device=device), torch.randint(0, 100, (samples,), device=device)


def build_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimizer of a case, such as "sgd" or "adamw-fused"."""
    fused = True if name.endswith("-fused") else None
    if name.startswith("sgd"):
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=fused)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor], micro_batches: int
) -> Callable[[], None]:
    """Return a training step as most loops write it."""

    def step() -> None:
        inputs, targets = batch
        for x, y in zip(inputs.chunk(micro_batches), targets.chunk(micro_batches), strict=True):
            loss = LOSS(model(x), y)
            (loss if micro_batches == 1 else loss * (len(x) / len(inputs))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def wait(device: str) -> None:
    """Wait until the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def overhead(case: dict[str, Any], device: str) -> dict[str, Any]:
    """Compare guarded with plain steps of a net."""
    build = batch_norm_net if case["net"] == "many tensors" else residual_net
    batch = random_batch(case["samples"], case["size"], device)
    models = [build(case["width"], case["depth"], device) for _ in range(3)]
    optimizers = [build_optimizer(case["optimizer"], model) for model in models]
    guard = oomph.guard(
        model=models[0], optimizer=optimizers[0], loss=LOSS, micro_batch=case["samples"] // case["micro_batches"]
    )
    plain = [plain_step(models[i], optimizers[i], batch, case["micro_batches"]) for i in (1, 2)]
    tensors = len(list(models[0].parameters())) + len(list(models[0].buffers()))
    result = compare(lambda: guard.step(batch), plain, case, device)
    return {**result, "tensors": tensors, "backup_bytes": guard.backup_bytes}


def compare(guarded: Loop, plain: Sequence[Loop], case: dict[str, Any], device: str) -> dict[str, Any]:
    """Time blocks of a guarded loop between blocks of two equal plain ones, whose distance shows the noise."""
    loops = (plain[0], guarded, plain[1])
    for loop in loops:
        for _ in range(case["steps"]):
            loop()
    syncs = [count_syncs(loop) for loop in loops[:2]] if device == "cuda" else None
    rows: list[list[float]] = []
    for block in range(case["blocks"]):
        row = [seconds_per_step(loop, case["steps"], device) for loop in (loops if block % 2 == 0 else loops[::-1])]
        rows.append(row if block % 2 == 0 else row[::-1])
    ratios = [2 * middle / (first + second) for first, middle, second in rows]
    added = [1e6 * (middle - (first + second) / 2) for first, middle, second in rows]
    plain_ms = 1e3 * statistics.median(row[0] for row in rows)
    limit_us = max(0.01 * plain_ms * 1e3, 500.0)
    return {
        **case,
        "plain_ms": plain_ms,
        "ratio": statistics.median(ratios),
        "ratio_error": median_error(ratios),
        "added_us": statistics.median(added),
        "added_us_error": median_error(added),
        "limit_us": limit_us,
        "within_limit": statistics.median(added) <= limit_us,
        "plain_apart_us": 1e6 * statistics.median(second - first for first, _, second in rows),
        "syncs_plain_guarded": syncs,
    }


def median_error(values: Sequence[float]) -> float:
    """Return the standard error of a median, from the quartiles."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 1.349 * math.sqrt(math.pi / 2 / len(values))


def seconds_per_step(loop: Loop, steps: int, device: str) -> float:
    """Time a block of steps."""
    wait(device)
    started_at = time.perf_counter()
    for _ in range(steps):
        loop()
    wait(device)
    return (time.perf_counter() - started_at) / steps


def count_syncs(loop: Loop) -> int:
    """Count the host-device synchronizations of a step, as torch reports them."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loop()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message).lower() for warning in caught)


def detector(case: dict[str, Any], device: str) -> dict[str, Any]:
    """Compare guarded with plain steps of YOLOv5, as `oomph train` runs them."""
    plain = [detector_step(case, device, guarded=False) for _ in range(2)]
    return compare(detector_step(case, device, guarded=True), plain, case, device)


def detector_step(case: dict[str, Any], device: str, *, guarded: bool) -> Loop:
    """Return a training step of a detector on images with forty boxes each."""
    torch.manual_seed(0)
    model = detect.yolov5(case["net"], 80).to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    criterion, samples, size = detect.DetectionLoss(model, imgsz=case["size"]), case["samples"], case["size"]
    hyperparameters = detect.Hyperparameters()
    optimizer = detect.build_optimizer(model, hyperparameters, samples, fused=device == "cuda" or None)
    ema, parameters = detect.Ema(model), list(model.parameters())
    images = torch.randint(0, 255, (samples, 3, size, size), dtype=torch.uint8, device=device)
    targets = torch.rand(40 * samples, 6) * torch.tensor([0, 80, 1, 1, 0.2, 0.2])
    targets[:, 0], targets[:, 1] = torch.arange(samples).repeat_interleave(40), targets[:, 1].floor()
    batch = images, targets.to(device)
    max_norm = hyperparameters.clip_grad_norm

    def forward(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss: Tensor = criterion(net(batch[0].float() / 255), batch[1])
        return loss

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            loss = forward(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, max_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ema.update(model)

    if not guarded:
        return step
    guard = oomph.guard(
        model=model,
        optimizer=optimizer,
        forward=forward,
        split="yolo",
        clip_grad_norm=max_norm,
        ema=ema,
        precision="amp-bf16",
    )
    return lambda: guard.step(batch)


# Under a cap: each strategy is one process, `--child STRATEGY`, which prints one JSON line.


def child(strategy: str, work: dict[str, Any], device: str) -> None:
    """Run a strategy under its cap and print how it went."""
    model = residual_net(work["width"], work["depth"], device)
    inputs, targets = random_batch(work["samples"], work["size"], "cpu")
    warmup = inputs[:1].to(device), targets[:1].to(device)
    LOSS(model(warmup[0]), warmup[1]).backward()  # allocates torch's own workspaces
    model.zero_grad()
    base = set_cap(work.get("cap"), device)
    started_at = time.perf_counter()
    result = STRATEGIES[strategy](model, (inputs, targets), work["steps"], device)
    wait(device)
    result["seconds"] = time.perf_counter() - started_at
    result["images_per_second"] = work["steps"] * work["samples"] / result["seconds"]
    result["need"] = peak_bytes(device) - base
    print(json.dumps(result))


def set_cap(cap: int | None, device: str) -> int:
    """Limit further allocations to a number of bytes; return the bytes in use."""
    if device == "cuda":
        base = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        if cap is not None:
            torch.cuda.empty_cache()
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min((base + cap) / total, 1.0))
        return base
    import resource

    size, rss = (int(pages) * resource.getpagesize() for pages in Path("/proc/self/statm").read_text().split()[:2])
    if cap is not None:
        resource.setrlimit(resource.RLIMIT_AS, (size + cap, resource.RLIM_INFINITY))
    return rss


def lift_cap(device: str) -> None:
    """Remove the limit."""
    free(device)
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)
        return
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def peak_bytes(device: str) -> int:
    """Return the peak memory."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_oom(error: BaseException) -> bool:
    """Recognize an out-of-memory error as other tools do: by a word in its text."""
    return "memory" in str(error) or "primitive" in str(error)


def free(device: str) -> None:
    """Free memory as other tools do before another attempt."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def run_plain(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """Run a plain loop."""
    optimizer = build_optimizer("sgd", model)
    for _ in range(steps):
        inputs, targets = (tensor.to(device) for tensor in batch)
        plain_step(model, optimizer, (inputs, targets), 1)()
    return {"micro_batches": 1, "retries": 0}


def run_guard(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """Run a guarded loop."""
    guard = oomph.guard(model=model, optimizer=build_optimizer("sgd", model), loss=LOSS, device=device)
    reports = [guard.step(batch) for _ in range(steps)]
    return {"micro_batches": reports[-1].micro_batches, "retries": sum(report.retries for report in reports)}


def run_halving(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """Halve the micro-batch on an error and repeat the batch; never grow."""
    optimizer = build_optimizer("sgd", model)
    size, retries, done = len(batch[0]), 0, 0
    while done < steps:
        failed = False
        try:
            for start in range(0, len(batch[0]), size):
                x, y = (tensor[start : start + size].to(device) for tensor in batch)
                (LOSS(model(x), y) * (len(x) / len(batch[0]))).backward()
            optimizer.step()
        except RuntimeError as error:
            if not is_oom(error):
                raise
            failed = True
        optimizer.zero_grad(set_to_none=True)
        if failed:
            free(device)
            size, retries = size // 2, retries + 1
        else:
            done += 1
    return {"micro_batches": -(-len(batch[0]) // size), "retries": retries}


def run_restarting(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """Restart with a batch a tenth smaller until it fits: as many images, in more steps."""
    state = {name: tensor.cpu().clone() for name, tensor in model.state_dict().items()}
    size, restarts = len(batch[0]), 0
    while True:
        failed = False
        try:
            model.load_state_dict(state)
            optimizer = build_optimizer("sgd", model)
            for _ in range(round(steps * len(batch[0]) / size)):
                x, y = (tensor[:size].to(device) for tensor in batch)
                plain_step(model, optimizer, (x, y), 1)()
        except RuntimeError as error:
            if not is_oom(error):
                raise
            failed = True
        if not failed:
            return {"micro_batches": 1, "retries": restarts, "batch": size}
        model.zero_grad(set_to_none=True)
        free(device)
        size, restarts = int(0.9 * size), restarts + 1


def run_exactness(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """Run guarded steps of which the first runs out of memory, then the same steps undisturbed; compare the weights."""
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ends: list[dict[str, Tensor]] = []
    retries: list[int] = []
    micro_batch = None
    for _ in range(2):
        model.load_state_dict(start)
        optimizer = build_optimizer("sgd", model)
        guard = oomph.guard(
            model=model, optimizer=optimizer, loss=LOSS, device=device, micro_batch=micro_batch, cooldown_steps=1000
        )
        reports = [guard.step(batch) for _ in range(steps)]
        ends.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        retries.append(sum(report.retries for report in reports))
        micro_batches = reports[-1].micro_batches
        micro_batch = -(-len(batch[0]) // micro_batches)
        lift_cap(device)
    difference = max(float((ends[0][name] - ends[1][name]).abs().max()) for name in start)
    change = max(float((ends[0][name] - start[name]).abs().max()) for name in start)
    return {"micro_batches": micro_batches, "retries": retries, "difference": difference, "change": change}


STRATEGIES: dict[str, Callable[[nn.Module, tuple[Tensor, Tensor], int, str], dict[str, Any]]] = {
    "plain": run_plain,
    "guard": run_guard,
    "halving": run_halving,
    "restarting": run_restarting,
    "exactness": run_exactness,
}


def run_child(strategy: str, work: dict[str, Any], device: str) -> dict[str, Any]:
    """Run a strategy in its own process."""
    command = [sys.executable, __file__, "--child", strategy, "--work", json.dumps(work), "--device", device]
    # cuBLAS is deterministic only with this workspace.
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if strategy == "exactness" else None
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode:
        return {"strategy": strategy, "failed": process.stderr.strip().splitlines()[-1:]}
    return {"strategy": strategy, **json.loads(process.stdout.splitlines()[-1])}


def capped(work: dict[str, Any], device: str) -> dict[str, Any]:
    """Run every strategy under a fraction of what the plain loop needs."""
    plain = show(run_child("plain", work, device))
    if "failed" in plain:
        return {"work": work, "runs": [plain]}
    limited = {**work, "cap": int(CAP_FRACTION * plain["need"])}
    works = {name: {**limited, "steps": 5} if name == "exactness" else limited for name in STRATEGIES}
    return {"work": limited, "runs": [plain, *(show(run_child(name, own, device)) for name, own in works.items())]}


def ranks(work: dict[str, Any]) -> dict[str, Any]:
    """Compare plain DDP with the guard, between two processes on the CPU."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", str(rank), "--port", str(port), "--work", json.dumps(work)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate()[0] for process in processes]
    result: dict[str, Any] = json.loads(outputs[0].splitlines()[-1])
    return result


def run_rank(rank: int, port: int, work: dict[str, Any]) -> None:
    """Run one of two ranks; the first prints the result."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    batch = random_batch(work["samples"], work["size"], "cpu")
    models = [DistributedDataParallel(residual_net(work["width"], work["depth"], "cpu")) for _ in range(2)]
    guard = oomph.guard(model=models[0], optimizer=build_optimizer("sgd", models[0]), loss=LOSS)
    loops: dict[str, Loop] = {
        "plain": plain_step(models[1], build_optimizer("sgd", models[1]), batch, 1),
        "guard": lambda: guard.step(batch),
    }
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for block in range(work["blocks"] + 1):
        for name, loop in loops.items():
            dist.barrier()
            per_step = seconds_per_step(loop, work["steps"], "cpu")
            if block:  # the first block warms up
                seconds[name].append(per_step)
    if rank == 0:
        ratios = [guarded / plain for guarded, plain in zip(seconds["guard"], seconds["plain"], strict=True)]
        plain_ms = 1e3 * statistics.median(seconds["plain"])
        print(json.dumps({"work": work, "plain_ms": plain_ms, "ratio": statistics.median(ratios)}))
    dist.barrier()
    guard.close()
    dist.destroy_process_group()


SHORT = {"net": "short", "width": 16, "depth": 2, "samples": 8, "size": 32}  # steps of about 3 ms on an H200
LONG = {"net": "long", "width": 128, "depth": 9, "samples": 64, "size": 128}  # about 35 ms
MANY = {"net": "many tensors", "width": 16, "depth": 82, "samples": 8, "size": 32}  # 498 tensors
TINY = {"net": "long", "width": 32, "depth": 3, "samples": 16, "size": 48}
CAPPED = {"width": 128, "depth": 12, "samples": 512, "size": 128, "steps": 20}


def show(result: dict[str, Any]) -> dict[str, Any]:
    """Print a result as soon as it is known."""
    print(json.dumps(result), flush=True)
    return result


def measure_overhead(device: str, *, quick: bool, blocks: int = 30, only: str = "") -> list[dict[str, Any]]:
    """Measure fused optimizers, which the limit is for, and others, which need a backup."""
    nets: tuple[dict[str, Any], ...] = (SHORT, MANY, TINY if quick else LONG)
    cases = [
        {
            **net,
            "blocks": 6 if quick else blocks,
            "steps": 3 if quick else 50 if net is SHORT else 15,
            "optimizer": f"{name}{fused}",
            "micro_batches": micro_batches,
        }
        for fused in ("-fused", "")
        for net in nets
        for name in ("sgd", "adamw")
        for micro_batches in ((1, 4) if net is SHORT and fused else (1,))
    ]
    chosen = [case for case in cases if only in f"{case['net']} {case['optimizer']} {case['micro_batches']}"]
    return [show(overhead(case, device)) for case in chosen]


def measure_detector(device: str, *, quick: bool, blocks: int = 20) -> dict[str, Any]:
    """Measure YOLOv5n."""
    size = {"samples": 2, "size": 64} if quick else {"samples": 16, "size": 640}
    return show(detector({"net": "n", **size, "blocks": 4 if quick else blocks, "steps": 2 if quick else 50}, device))


def measure_capped(device: str, *, quick: bool) -> dict[str, Any]:
    """Measure the strategies under a cap."""
    return capped({**TINY, "samples": 64, "steps": 10} if quick else CAPPED, device)


def measure_ranks(device: str, *, quick: bool) -> dict[str, Any]:
    """Measure two ranks, on the CPU whatever the device is."""
    del device
    return show(ranks({**TINY, "steps": 5, "blocks": 4 if quick else 15}))


MEASUREMENTS: dict[str, Callable[..., Any]] = {
    "overhead": measure_overhead,
    "detector": measure_detector,
    "capped": measure_capped,
    "ranks": measure_ranks,
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the results to this JSON file")
    parser.add_argument("--quick", action="store_true", help="small sizes and few blocks")
    parser.add_argument("--only", choices=tuple(MEASUREMENTS), action="append", help="measure only this")
    parser.add_argument("--case", default="", help='only overhead cases that contain this text: "short sgd-fused 4"')
    parser.add_argument("--blocks", type=int, help="blocks of steps in overhead and detector")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--child", choices=sorted(STRATEGIES), help=argparse.SUPPRESS)
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        run_rank(args.rank, args.port, args.work)
        return
    if args.device == "cpu":
        torch.set_num_threads(1)
    if args.child:
        child(args.child, args.work, args.device)
        return
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if args.device == "cuda" else platform.processor() or "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    for name in args.only or MEASUREMENTS:
        more: dict[str, Any] = {"only": args.case} if name == "overhead" else {}
        if args.blocks and name in {"overhead", "detector"}:
            more["blocks"] = args.blocks
        results[name] = MEASUREMENTS[name](args.device, quick=args.quick, **more)
        if args.out:
            args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
