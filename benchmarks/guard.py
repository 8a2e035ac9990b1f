"""What the guard costs when nothing fails, and what it saves when memory is short.

    python benchmarks/guard.py --out guard.json            # on a GPU if there is one
    python benchmarks/guard.py --out guard.json --quick    # small, for the CPU
    python benchmarks/guard.py --only short --only parts
    python benchmarks/guard.py --only short --case adamw:1 --case adamw:4 --blocks 200

Short and long: blocks of steps, plain, guarded and plain in turn, in one process, with the same pieces; the median of
the ratios of neighbouring blocks, and how far the two plain loops, which do the same, are apart. Many: the same of a
net with 160 parameters and as many buffers. Single: short and many step by step, in random order. Detector: blocks of
YOLOv5n, with clipping and an average in both loops. Parts: where the guard's own time goes. Capped: the same work under
60 % of what the plain loop needs, by the guard, by halving as composer does, and by restarting with a batch a tenth
smaller as accelerate does, each in a process of its own; and a run that ran short, held against an undisturbed one with
the same pieces. Ranks: two processes on the CPU, with gradients exchanged during backward and after it.

About twenty minutes on an H200, seventeen of them for the blocks.
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
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
import oomph
from oomph import detect
from oomph.recovery import _guard as guard_module
from oomph.recovery import _piecework as piecework_module

LOSS = nn.functional.cross_entropy
CAP = 0.6


class Block(nn.Module):
    """A residual block with GroupNorm, so that pieces are exact."""

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


def build(width: int, depth: int, device: str) -> nn.Module:
    """A net of so many blocks, always with the same weights."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    layers += [Block(width) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)).to(device)


def build_many(width: int, depth: int, device: str) -> nn.Module:
    """A net of so many convolutions with BatchNorm, as a ResNet has them: many tensors, little work."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)).to(device)


def batch_of(samples: int, size: int, device: str) -> tuple[Tensor, Tensor]:
    """Random images and classes."""
    return torch.randn(samples, 3, size, size, device=device), torch.randint(0, 100, (samples,), device=device)


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a case."""
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True if name == "adamw-fused" else None)


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, Tensor], pieces: int
) -> Callable[[], None]:
    """The step as everybody writes it, in given pieces."""

    def whole() -> None:
        LOSS(model(batch[0]), batch[1]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def step() -> None:
        inputs, targets = batch
        for x, y in zip(inputs.chunk(pieces), targets.chunk(pieces), strict=True):
            (LOSS(model(x), y) * (len(x) / len(inputs))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return whole if pieces == 1 else step


def detector_of(
    case: dict[str, Any], device: str
) -> tuple[nn.Module, torch.optim.Optimizer, Callable[..., Tensor], tuple[Tensor, Tensor]]:
    """A detector, its optimizer, its forward, and a batch of images with forty boxes each."""
    torch.manual_seed(0)
    model = detect.yolov5(case["net"], 80).to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loss, samples, size = detect.DetectionLoss(model, imgsz=case["size"]), case["samples"], case["size"]
    optimizer = detect.build_optimizer(model, detect.Hyperparameters(), samples, fused=device == "cuda" or None)
    images = torch.randint(0, 255, (samples, 3, size, size), dtype=torch.uint8)
    targets = torch.rand(40 * samples, 6) * torch.tensor([0, 80, 1, 1, 0.2, 0.2])
    targets[:, 0], targets[:, 1] = torch.arange(samples).repeat_interleave(40), targets[:, 1].floor()

    def forward(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        value: Tensor = loss(net(batch[0].float() / 255), batch[1])
        return value

    return model, optimizer, forward, (images.to(device), targets.to(device))


def plain_detector(case: dict[str, Any], device: str) -> Callable[[], None]:
    """Its step as everybody writes it."""
    model, optimizer, forward, batch = detector_of(case, device)
    ema, parameters = detect.Ema(model), list(model.parameters())

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            value = forward(model, batch)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, detect.Hyperparameters().clip_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        ema.update(model)

    return step


def guarded_detector(case: dict[str, Any], device: str) -> Callable[[], object]:
    """Its step under the guard."""
    model, optimizer, forward, batch = detector_of(case, device)
    guard = oomph.guard(
        model=model,
        optimizer=optimizer,
        forward=forward,
        split=detect.split_batch,
        clip=detect.Hyperparameters().clip_grad_norm,
        ema=detect.Ema(model),
        precision="amp-bf16",
    )
    return lambda: guard.step(batch)


def wait(device: str) -> None:
    """Until the device has done its work."""
    if device == "cuda":
        torch.cuda.synchronize()


Loop = Callable[[], object]


def overhead(
    case: dict[str, Any],
    device: str,
    built: Callable[[int, int, str], nn.Module] = build,
    compared: Callable[..., dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Guarded steps beside plain ones, of a net and a batch of random images: in blocks, or as they are compared."""
    batch = batch_of(case["samples"], case["size"], device)
    models = [built(case["width"], case["depth"], device) for _ in range(3)]
    made = [(model, optimizer_of(case["optimizer"], model)) for model in models]
    guard = oomph.guard(model=made[0][0], optimizer=made[0][1], loss=LOSS, pieces=case["pieces"])
    plains = [plain_step(*own, batch, case["pieces"]) for own in made[1:]]
    found = (compared or compare)(lambda: guard.step(batch), plains, case, device)
    return {**found, "copy_bytes": guard.copy_bytes}


def compare(guarded: Loop, plains: Sequence[Loop], case: dict[str, Any], device: str) -> dict[str, Any]:
    """Blocks of a guarded loop between blocks of two plain ones, which tell how much chance there is."""
    loops = (plains[0], guarded, plains[1])
    for loop in loops:
        for _ in range(case["steps"]):
            loop()
    waits = [count_waits(loop) for loop in loops[:2]] if device == "cuda" else None
    rows: list[list[float]] = []
    for block in range(case["blocks"]):
        row = [seconds_of(loop, case["steps"], device) for loop in (loops if block % 2 == 0 else loops[::-1])]
        rows.append(row if block % 2 == 0 else row[::-1])
    ratios = [2 * between / (first + second) for first, between, second in rows]
    added = [1e6 * (between - (first + second) / 2) for first, between, second in rows]
    return {
        **case,
        "plain_ms": 1e3 * statistics.median(row[0] for row in rows),
        "ratio": statistics.median(ratios),
        "ratio_quartiles": statistics.quantiles(ratios, n=4),
        "ratio_error": error_of_median(ratios),
        "added_us": statistics.median(added),
        "added_us_error": error_of_median(added),
        "plain_apart_us": 1e6 * statistics.median(second - first for first, _, second in rows),
        "waits_plain_guarded": waits,
    }


def compare_singly(guarded: Loop, plains: Sequence[Loop], case: dict[str, Any], device: str) -> dict[str, Any]:
    """Single steps of a guarded loop and of two plain ones, in random order: what the host does meanwhile hits all."""
    loops = (plains[0], guarded, plains[1])
    for loop in loops:
        for _ in range(30):
            loop()
    chance = Random(0)  # noqa: S311  one of our own: the guard would see that Python's was used, and read it anew
    order, rows = [0, 1, 2], [[0.0] * 3 for _ in range(case["rounds"])]
    for row in rows:
        chance.shuffle(order)
        for number in order:
            row[number] = 1e6 * seconds_of(loops[number], 1, device)
    added = [between - (first + second) / 2 for first, between, second in rows]
    return {
        **case,
        "plain_ms": statistics.median(row[0] for row in rows) / 1e3,
        "added_us": statistics.median(added),
        "added_us_error": error_of_median(added),
        "plain_apart_us": statistics.median(second - first for first, _, second in rows),
    }


def error_of_median(values: Sequence[float]) -> float:
    """The standard error of a median, by the quartiles: a block that the host disturbed counts like any other."""
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 1.349 * math.sqrt(math.pi / 2 / len(values))


def seconds_of(loop: Callable[[], object], steps: int, device: str) -> float:
    """The time of a step, in a block of so many."""
    wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        loop()
    wait(device)
    return (time.perf_counter() - began) / steps


def count_waits(loop: Callable[[], object]) -> int:
    """Host-device synchronisations in one step, as torch itself reports them."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loop()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(one.message).lower() for one in caught)


def parts(case: dict[str, Any], device: str, steps: int) -> dict[str, Any]:
    """Microseconds of a step by part: the host's time, which is what a step of launches is made of."""
    batch = batch_of(case["samples"], case["size"], device)
    model = build(case["width"], case["depth"], device)
    optimizer = optimizer_of(case["optimizer"], model)
    taken: dict[str, float] = {}
    guard = oomph.guard(model=model, optimizer=optimizer, loss=clocked(LOSS, "user", taken), pieces=case["pieces"])
    for _ in range(10):
        guard.step(batch)
    own: Any = guard
    watched: list[tuple[Any, str, str]] = [(model, "forward", "user"), (optimizer, "step", "user")]
    watched += [(one, "take", f"take {type(one).__name__}") for one in own._transaction._keepers]
    watched += [(one, "take", "take update") for one in own._update._states.values()]
    watched += [(own._meter, name, "meter") for name in ("begin", "look", "end")]
    watched += [(own._update, "run", "update, with the user's")]
    watched += [(guard.ladder, "settle", "settle"), (own, "_report", "report")]
    shared = [(piecework_module, "cut", "cut"), (guard_module, "differentiate", "user")]  # by all guards, so put back
    before = [getattr(owner, name) for owner, name, _ in shared]
    for owner, name, label in watched + shared:
        setattr(owner, name, clocked(getattr(owner, name), label, taken))
    rows: list[dict[str, float]] = []
    for _ in range(steps):
        wait(device)
        taken.clear()
        began = time.perf_counter()
        guard.step(batch)
        whole = time.perf_counter() - began
        rows.append({**taken, "whole": whole, "guard": whole - taken["user"]})
    for (owner, name, _), function in zip(shared, before, strict=True):
        setattr(owner, name, function)
    medians = {name: 1e6 * statistics.median(row.get(name, 0.0) for row in rows) for name in rows[-1]}
    return {**case, "us": {name: round(value, 1) for name, value in medians.items()}}


def clocked(function: Callable[..., Any], label: str, taken: dict[str, float]) -> Callable[..., Any]:
    """A function that adds its time to what was taken under its label."""

    def run(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            taken[label] = taken.get(label, 0.0) + time.perf_counter() - began

    return run


# Under a cap: each way is one process, `--child WAY`, which prints one JSON line.


def child(way: str, work: dict[str, Any], device: str) -> None:
    """Do the work in one way, under its cap, and print how it went."""
    model = build(work["width"], work["depth"], device)
    inputs, targets = batch_of(work["samples"], work["size"], "cpu")
    small = inputs[:1].to(device), targets[:1].to(device)
    LOSS(model(small[0]), small[1]).backward()  # what torch itself takes once
    model.zero_grad()
    base = set_cap(work.get("cap"), device)
    began = time.perf_counter()
    found = WAYS[way](model, (inputs, targets), work["steps"], device)
    wait(device)
    found["seconds"] = time.perf_counter() - began
    found["images_per_second"] = work["steps"] * work["samples"] / found["seconds"]
    found["need"] = peak(device) - base
    print(json.dumps(found))


def set_cap(cap: int | None, device: str) -> int:
    """Limit what may be allocated beyond what there is; what there is."""
    if device == "cuda":
        base = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        if cap is not None:
            torch.cuda.empty_cache()
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min((base + cap) / total, 1.0))
        return base
    import resource

    pages = [int(one) * resource.getpagesize() for one in Path("/proc/self/statm").read_text().split()[:2]]
    if cap is not None:
        resource.setrlimit(resource.RLIMIT_AS, (pages[0] + cap, resource.RLIM_INFINITY))
    return pages[1]


def peak(device: str) -> int:
    """The most that was in use."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_short(error: BaseException) -> bool:
    """As the peers look at it: by a word in the text."""
    return "memory" in str(error) or "primitive" in str(error)


def free(device: str) -> None:
    """What the peers do before another attempt."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def way_plain(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """The plain loop."""
    optimizer = optimizer_of("sgd", model)
    for _ in range(steps):
        inputs, targets = (one.to(device) for one in batch)
        plain_step(model, optimizer, (inputs, targets), 1)()
    return {"pieces": 1, "retries": 0}


def way_guard(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """The guarded loop."""
    guard = oomph.guard(model=model, optimizer=optimizer_of("sgd", model), loss=LOSS, device=device)
    reports = [guard.step(batch) for _ in range(steps)]
    return {"pieces": reports[-1].pieces, "retries": sum(report.retries for report in reports)}


def way_halving(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """Halve the microbatch on a fault, run the whole batch again; never grow."""
    optimizer = optimizer_of("sgd", model)
    micro, retries, done = len(batch[0]), 0, 0
    while done < steps:
        short = False
        try:
            for start in range(0, len(batch[0]), micro):
                x, y = (one[start : start + micro].to(device) for one in batch)
                (LOSS(model(x), y) * (len(x) / len(batch[0]))).backward()
            optimizer.step()
        except RuntimeError as error:
            if not is_short(error):
                raise
            short = True
        optimizer.zero_grad(set_to_none=True)
        if short:
            free(device)
            micro, retries = micro // 2, retries + 1
        else:
            done += 1
    return {"pieces": -(-len(batch[0]) // micro), "retries": retries}


def way_restarting(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """Start from the beginning with a batch a tenth smaller until it fits: as many images, in more steps."""
    state = {name: one.cpu().clone() for name, one in model.state_dict().items()}
    size, restarts = len(batch[0]), 0
    while True:
        short = False
        try:
            model.load_state_dict(state)
            optimizer = optimizer_of("sgd", model)
            for _ in range(round(steps * len(batch[0]) / size)):
                x, y = (one[:size].to(device) for one in batch)
                plain_step(model, optimizer, (x, y), 1)()
        except RuntimeError as error:
            if not is_short(error):
                raise
            short = True
        if not short:
            return {"pieces": 1, "retries": restarts, "batch": size}
        model.zero_grad(set_to_none=True)
        free(device)
        size, restarts = int(0.9 * size), restarts + 1


def way_exact(model: nn.Module, batch: tuple[Tensor, Tensor], steps: int, device: str) -> dict[str, Any]:
    """Guarded steps of which the first runs short; then the same ones, undisturbed, in as many pieces."""
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    start = {name: one.clone() for name, one in model.state_dict().items()}
    ends: list[dict[str, Tensor]] = []
    found: list[tuple[int, int]] = []
    pieces = None
    for _ in range(2):
        model.load_state_dict(start)
        guard = oomph.guard(
            model=model, optimizer=optimizer_of("sgd", model), loss=LOSS, device=device, pieces=pieces, calm=1000
        )
        reports = [guard.step(batch) for _ in range(steps)]
        ends.append({name: one.clone() for name, one in model.state_dict().items()})
        found.append((reports[-1].pieces, sum(report.retries for report in reports)))
        pieces = reports[-1].pieces
        lift_cap(device)
    apart = max(float((ends[0][name] - ends[1][name]).abs().max()) for name in start)
    moved = max(float((ends[0][name] - start[name]).abs().max()) for name in start)
    return {"pieces": pieces, "retries": found[0][1], "undisturbed": found[1], "apart": apart, "moved": moved}


def lift_cap(device: str) -> None:
    """Without the limit again."""
    free(device)
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)
        return
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


WAYS: dict[str, Callable[[nn.Module, tuple[Tensor, Tensor], int, str], dict[str, Any]]] = {
    "plain": way_plain,
    "guard": way_guard,
    "halving": way_halving,
    "restarting": way_restarting,
    "exact": way_exact,
}


def run_child(way: str, work: dict[str, Any], device: str) -> dict[str, Any]:
    """One way in a process of its own."""
    command = [sys.executable, __file__, "--child", way, "--work", json.dumps(work), "--device", device]
    # cuBLAS is deterministic only with a workspace of its own.
    environment = {**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if way == "exact" else None
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if ended.returncode:
        return {"way": way, "failed": ended.stderr.strip().splitlines()[-1:]}
    return {"way": way, **json.loads(ended.stdout.splitlines()[-1])}


def capped(work: dict[str, Any], device: str) -> dict[str, Any]:
    """Every way under 60 % of what the plain loop needs."""
    plain = say(run_child("plain", work, device))
    if "failed" in plain:
        return {"work": work, "runs": [plain]}
    with_cap = {**work, "cap": int(CAP * plain["need"])}
    ways = {way: {**with_cap, "steps": 5} if way == "exact" else with_cap for way in WAYS}
    return {"work": with_cap, "runs": [plain, *(say(run_child(way, own, device)) for way, own in ways.items())]}


# Two ranks on this machine's CPU: gradients exchanged during backward, as long as nothing fails, and after it.


def ranks(work: dict[str, Any]) -> dict[str, Any]:
    """Plain DDP, the guard, and the guard without overlap, in turn, between two processes."""
    with socket.socket() as free_port:
        free_port.bind(("127.0.0.1", 0))
        port = free_port.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--rank", str(rank), "--port", str(port), "--work", json.dumps(work)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate()[0] for process in started]
    found: dict[str, Any] = json.loads(said[0].splitlines()[-1])
    return found


def one_rank(rank: int, port: int, work: dict[str, Any]) -> None:
    """One of two ranks; the first prints."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    batch = batch_of(work["samples"], work["size"], "cpu")
    loops: dict[str, Callable[[], object]] = {}
    for way in ("plain", "guard", "guard without overlap"):
        model = DistributedDataParallel(build(work["width"], work["depth"], "cpu"))
        optimizer = optimizer_of("sgd", model)
        if way == "plain":
            loops[way] = plain_step(model, optimizer, batch, 1)
        else:
            overlap = way == "guard"
            guard = oomph.guard(model=model, optimizer=optimizer, loss=LOSS, overlap=overlap)
            loops[way] = lambda guard=guard: guard.step(batch)  # type: ignore[misc]
    seconds: dict[str, list[float]] = {way: [] for way in loops}
    for block in range(work["blocks"] + 1):
        for way, loop in loops.items():
            dist.barrier()
            began = time.perf_counter()
            for _ in range(work["steps"]):
                loop()
            if block:  # the first one warms up
                seconds[way].append((time.perf_counter() - began) / work["steps"])
    ratios = {way: [a / b for a, b in zip(taken, seconds["plain"], strict=True)] for way, taken in seconds.items()}
    if rank == 0:
        medians = {way: statistics.median(values) for way, values in ratios.items()}
        print(json.dumps({"work": work, "plain_ms": 1e3 * statistics.median(seconds["plain"]), "ratio": medians}))
    dist.barrier()
    dist.destroy_process_group()


SMALL = {"width": 16, "depth": 2, "samples": 8, "size": 32}
LARGE = {"width": 128, "depth": 9, "samples": 64, "size": 128}  # steps of about 35 ms on an H200
MANY = {"width": 16, "depth": 52, "samples": 8, "size": 32}
TINY = {"width": 32, "depth": 3, "samples": 16, "size": 48}
CAPPED = {"width": 128, "depth": 12, "samples": 512, "size": 128, "steps": 20}
QUICKLY = {**TINY, "samples": 64, "steps": 10}
SHORT_CASES = tuple((name, pieces) for pieces in (1, 4) for name in ("sgd", "adamw", "adamw-fused"))
LONG_CASES = (("sgd", 1), ("adamw", 1), ("sgd", 4))


def say(found: dict[str, Any]) -> dict[str, Any]:
    """Print a result as soon as it is there."""
    print(json.dumps(found), flush=True)
    return found


def measure_short(
    device: str, *, quick: bool, cases: Sequence[tuple[str, int]] = SHORT_CASES, blocks: int = 60
) -> list[dict[str, Any]]:
    """Short steps, where microseconds count: many blocks, since a host that does something else shows in them."""
    short = {**SMALL, "blocks": 10 if quick else blocks, "steps": 5 if quick else 50}
    return [say(overhead({**short, "optimizer": name, "pieces": pieces}, device)) for name, pieces in cases]


def case_of(text: str) -> tuple[str, int]:
    """A case of short steps by its name, such as adamw:4."""
    name, _, pieces = text.partition(":")
    if name not in {known for known, _ in SHORT_CASES} or not pieces.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no case; say sgd:1, adamw:4, adamw-fused:1 or the like")
    return name, int(pieces)


def measure_long(device: str, *, quick: bool) -> list[dict[str, Any]]:
    """Long steps, where the ratio counts."""
    long = {**(TINY if quick else LARGE), "blocks": 8 if quick else 20, "steps": 2 if quick else 50}
    return [say(overhead({**long, "optimizer": name, "pieces": pieces}, device)) for name, pieces in LONG_CASES]


def measure_many(device: str, *, quick: bool) -> list[dict[str, Any]]:
    """Short steps of a net with many tensors, each of which the guard looks at."""
    many = {**MANY, "blocks": 10 if quick else 30, "steps": 2 if quick else 50, "pieces": 1}
    names = ("sgd", "adamw-fused", "adamw")
    return [say(overhead({**many, "optimizer": name}, device, build_many)) for name in names]


def measure_single(device: str, *, quick: bool, cases: Sequence[tuple[str, int]] = SHORT_CASES) -> list[dict[str, Any]]:
    """Short steps and those of the net with many tensors, step by step: the GPU stands still between them."""
    found = []
    for name, pieces in cases:
        case = {**SMALL, "optimizer": name, "pieces": pieces, "rounds": 30 if quick else 2000 // pieces}
        found.append(say(overhead(case, device, compared=compare_singly)))
    for name in ("sgd", "adamw"):
        case = {**MANY, "optimizer": name, "pieces": 1, "rounds": 10 if quick else 1000}
        found.append(say(overhead(case, device, build_many, compare_singly)))
    return found


def measure_detector(device: str, *, quick: bool) -> list[dict[str, Any]]:
    """YOLOv5n as `oomph train` trains it, in steps that are all launches; clipping and an average in both loops."""
    nano = {"net": "n", "samples": 2 if quick else 16, "size": 64 if quick else 640, "pieces": 1}
    case = {**nano, "blocks": 6 if quick else 20, "steps": 2 if quick else 50}
    return [
        say(compare(guarded_detector(case, device), [plain_detector(case, device) for _ in range(2)], case, device))
    ]


def measure_parts(device: str, *, quick: bool) -> list[dict[str, Any]]:
    """Where the time goes in short steps."""
    cases = [{**SMALL, "optimizer": name, "pieces": pieces} for name, pieces in SHORT_CASES]
    return [say(parts(case, device, 50 if quick else 200)) for case in cases]


def measure_capped(device: str, *, quick: bool) -> dict[str, Any]:
    """The ways, under a cap."""
    return capped(QUICKLY if quick else CAPPED, device)


def measure_ranks(device: str, *, quick: bool) -> dict[str, Any]:
    """Two ranks, on the CPU whatever the device is."""
    del device
    return say(ranks({**TINY, "steps": 5, "blocks": 4 if quick else 15}))


MEASURES: dict[str, Callable[..., Any]] = {
    "short": measure_short,
    "single": measure_single,
    "many": measure_many,
    "long": measure_long,
    "detector": measure_detector,
    "parts": measure_parts,
    "capped": measure_capped,
    "ranks": measure_ranks,
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=tuple(MEASURES), action="append")
    parser.add_argument("--case", type=case_of, action="append", help="of short steps: optimizer:pieces")
    parser.add_argument("--blocks", type=int, default=60, help="of short steps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--child", choices=sorted(WAYS))
    parser.add_argument("--work", type=json.loads)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--port", type=int)
    asked = parser.parse_args()
    if asked.rank is not None:
        one_rank(asked.rank, asked.port, asked.work)
        return
    if asked.device == "cpu":
        torch.set_num_threads(1)
    if asked.child:
        child(asked.child, asked.work, asked.device)
        return
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if asked.device == "cuda" else platform.processor() or "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    for name in asked.only or MEASURES:
        more: dict[str, Any] = {"cases": asked.case or SHORT_CASES} if name in {"short", "single"} else {}
        more |= {"blocks": asked.blocks} if name == "short" else {}
        found[name] = MEASURES[name](asked.device, quick=asked.quick, **more)
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
