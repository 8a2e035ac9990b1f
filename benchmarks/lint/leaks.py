"""What the mistakes of the rules about leaks and out-of-memory handling cost: runs the wrong and the right code.

    python benchmarks/lint/leaks.py --device cpu
    python benchmarks/lint/leaks.py --device cuda

Each measurement runs in its own process, because a process keeps what its allocator took.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

MIB = 2**20
VARIANTS = ("wrong", "right")


@dataclass(frozen=True)
class Measurement:
    """One row of the table.

    Attributes:
        rule: The rule.
        what: What is measured, with its setup.
        unit: Unit of both numbers.
        run: Returns the number for a device, for the "wrong" or the "right" code.
        needs_gpu: True if the CPU shows no difference.
    """

    rule: str
    what: str
    unit: str
    run: Callable[[torch.device, str], float]
    needs_gpu: bool = False


def conv_net(device: torch.device, width: int = 64, layers: int = 8, *, with_modes: bool = False) -> nn.Sequential:
    """Return a plain convolutional net, or one with batch norm and dropout."""
    torch.manual_seed(0)
    parts: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(layers):
        parts.append(nn.Conv2d(width, width, 3, padding=1))
        parts += [nn.BatchNorm2d(width), nn.Dropout(0.2)] if with_modes else []
        parts.append(nn.ReLU())
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]
    return nn.Sequential(*parts).to(device)


def batch(device: torch.device, size: int = 32, side: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images and labels."""
    torch.manual_seed(1)
    return torch.randn(size, 3, side, side, device=device), torch.randint(0, 10, (size,), device=device)


def memory(device: torch.device) -> float:
    """Return the memory in use in MiB: of the GPU, or of this process."""
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated() / MIB
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / MIB


def peak(device: torch.device) -> float:
    """Return the highest memory so far in MiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / MIB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def synchronize(device: torch.device) -> None:
    """Wait for the GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def train_step(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Run forward and backward; return the loss with its graph."""
    net.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    return loss


def loss_keeps_graph(device: torch.device, variant: str) -> float:
    """Return the MiB that 1,000 steps keep."""
    net = conv_net(device, 4, 32)
    x, y = batch(device, 2, 4)
    train_step(net, x, y)
    before = _host_memory()
    losses = []
    for _ in range(1000):
        loss = train_step(net, x, y)
        losses.append(loss if variant == "wrong" else loss.detach())
    return _host_memory() - before


def _host_memory() -> float:
    """Return the memory of the process in MiB: nodes of graphs are in RAM, whatever the device."""
    return memory(torch.device("cpu"))


def outputs_keep_graph(device: torch.device, variant: str) -> float:
    """Return the MiB that ten batches of a validation keep, in a list of their outputs."""
    net = conv_net(device)
    x, _ = batch(device, 16)
    net(x)
    before = memory(device)
    outputs = []
    for _ in range(10):
        out = net(x)
        outputs.append(out if variant == "wrong" else out.detach())
        del out
    return memory(device) - before


def validation_with_grad(device: torch.device, variant: str) -> float:
    """Return the peak in MiB of a batch's forward pass."""
    net = conv_net(device, layers=12)
    x, _ = batch(device, 64)
    before = memory(device)
    with torch.set_grad_enabled(variant == "wrong"):
        net(x)
    return peak(device) - before


def validation_without_eval(device: torch.device, variant: str) -> float:
    """Return the validation loss, in batches of 2, of a net that was trained with batches of 32."""
    net = conv_net(device, 16, 3, with_modes=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    images = torch.randn(256, 3, 16, 16, device=device)
    labels = (images.mean((1, 2, 3)) > 0).long() * 5
    for step in range(120):
        part = slice(32 * (step % 6), 32 * (step % 6 + 1))
        train_step(net, images[part], labels[part])
        optimizer.step()
    net.train(variant == "wrong")
    with torch.no_grad():
        losses = [
            nn.functional.cross_entropy(net(images[i : i + 2]), labels[i : i + 2]).item() for i in range(192, 256, 2)
        ]
    return sum(losses) / len(losses)


def hook_not_removed(device: torch.device, variant: str) -> float:
    """Return the milliseconds of a forward pass after 1,000 calls of a function that registers a hook."""
    net = conv_net(device, 8, 2)
    x, _ = batch(device, 4, 8)
    features: dict[str, torch.Tensor] = {}

    def keep(_module: nn.Module, _inputs: object, output: torch.Tensor) -> None:
        features["x"] = output.detach().cpu()

    with torch.no_grad():
        for _ in range(1000):
            handle = net[0].register_forward_hook(keep)
            if variant == "right":
                handle.remove()
        times = []
        for _ in range(30):
            start = time.perf_counter()
            net(x)
            synchronize(device)
            times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def retain_graph_in_loop(device: torch.device, variant: str) -> float:
    """Return the peak in MiB of three steps."""
    net = conv_net(device)
    x, y = batch(device, 64)
    before = memory(device)
    for _ in range(3):
        net.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward(retain_graph=variant == "wrong")
    return peak(device) - before


class _Failing(nn.Module):
    """A last layer that runs out of memory as often as told."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Raise or return the input."""
        if self.failures:
            self.failures -= 1
            raise torch.cuda.OutOfMemoryError("out of memory, for the measurement")
        return x


def exception_kept(device: torch.device, variant: str) -> float:
    """Return the MiB in use after a failed step whose error is noted."""
    net = nn.Sequential(conv_net(device), _Failing(1))
    x, y = batch(device, 64)
    before = memory(device)
    errors: list[object] = []
    try:
        train_step(net, x, y)
    except torch.cuda.OutOfMemoryError as error:
        errors.append(error if variant == "wrong" else str(error))
    return memory(device) - before


def empty_cache_in_loop(device: torch.device, variant: str) -> float:
    """Return the milliseconds of a training step."""
    net = conv_net(device, 64, 16)
    x, y = batch(device, 64)
    for _ in range(5):
        train_step(net, x, y)
    synchronize(device)
    start = time.perf_counter()
    for _ in range(100):
        train_step(net, x, y)
        if variant == "wrong":
            torch.cuda.empty_cache()
    synchronize(device)
    return (time.perf_counter() - start) * 10


def useless_del(device: torch.device, variant: str) -> float:
    """Return the MiB in use after the deletion of 256 MiB in a list."""
    before = memory(device)
    tensors = [torch.ones(4 * MIB, device=device) for _ in range(16)]
    if variant == "wrong":
        for tensor in tensors:
            del tensor
    else:
        tensors.clear()
    return memory(device) - before


def retry_inside_except(device: torch.device, variant: str) -> float:
    """Return the peak in MiB of a step that fails and is retried in two halves."""
    net = nn.Sequential(conv_net(device), _Failing(1))
    x, y = batch(device, 64)
    before = memory(device)
    is_short = False
    try:
        train_step(net, x, y)
    except torch.cuda.OutOfMemoryError:
        is_short = True
        if variant == "wrong":
            _run_halves(net, x, y)
    if is_short and variant == "right":
        _run_halves(net, x, y)
    return peak(device) - before


def _run_halves(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    for part, labels in zip(x.chunk(2), y.chunk(2), strict=True):
        (nn.functional.cross_entropy(net(part), labels) / 2).backward()


def broad_oom_except(device: torch.device, variant: str) -> float:
    """Return how often a step with a wrong shape is tried before the error is shown; 0 means never shown."""
    net = conv_net(device, 8, 1)
    caught = RuntimeError if variant == "wrong" else torch.cuda.OutOfMemoryError
    size, attempts = 64, 0
    try:
        while size >= 1:
            attempts += 1
            try:
                x, y = batch(device, size)
                train_step(net, x[:, :2], y)
                break
            except caught:
                size //= 2
    except RuntimeError:
        return attempts
    return 0


def halved_without_accumulation(device: torch.device, variant: str) -> float:
    """Return how far the weights are from those of batch 64 after 50 steps, relative to the way they went, in %."""
    images, labels = batch(device, 64 * 50, 8)
    start = conv_net(device, 8, 2)
    reference, net = copy.deepcopy(start), copy.deepcopy(start)
    _train(reference, images, labels, parts=1, used=1)
    _train(net, images, labels, parts=2, used=1 if variant == "wrong" else 2)
    difference, way = _distance(net, reference), _distance(reference, start)
    return 100 * difference / way


def _train(net: nn.Module, images: torch.Tensor, labels: torch.Tensor, *, parts: int, used: int) -> None:
    """Train with batches of 64, of which the first `used` of `parts` parts are run."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for x, y in zip(images.split(64), labels.split(64), strict=True):
        optimizer.zero_grad()
        for a, b in list(zip(x.chunk(parts), y.chunk(parts), strict=True))[:used]:
            (nn.functional.cross_entropy(net(a), b) / used).backward()
        optimizer.step()


def _distance(net: nn.Module, other: nn.Module) -> float:
    pairs = zip(net.parameters(), other.parameters(), strict=True)
    return math.sqrt(sum((a - b).square().sum().item() for a, b in pairs))


SMALL = "64 channels, 8 convolutions, 32 × 32 pixels"
MEASUREMENTS = (
    Measurement("loss-keeps-graph", "RAM kept by 1,000 steps, 33 convolutions", "MiB", loss_keeps_graph),
    Measurement(
        "outputs-keep-graph", f"memory kept by 10 validation batches of 16, {SMALL}", "MiB", outputs_keep_graph
    ),
    Measurement(
        "validation-with-grad", "peak of a batch of 64, 64 channels, 12 convolutions", "MiB", validation_with_grad
    ),
    Measurement(
        "validation-without-eval",
        "validation loss in batches of 2, batch norm and dropout",
        "",
        validation_without_eval,
    ),
    Measurement("hook-not-removed", "time of a forward pass after 1,000 registrations", "ms", hook_not_removed),
    Measurement("retain-graph-in-loop", f"peak of 3 steps of 64, {SMALL}", "MiB", retain_graph_in_loop),
    Measurement("exception-kept", f"memory after a failed step of 64, {SMALL}", "MiB", exception_kept),
    Measurement(
        "empty-cache-in-loop",
        "time of a step of 64, 64 channels, 16 convolutions",
        "ms",
        empty_cache_in_loop,
        needs_gpu=True,
    ),
    Measurement("useless-del", "memory after the deletion of 256 MiB", "MiB", useless_del),
    Measurement(
        "retry-inside-except", f"peak of a step of 64 that is retried in halves, {SMALL}", "MiB", retry_inside_except
    ),
    Measurement("broad-oom-except", "attempts until a wrong shape is shown (0: never)", "", broad_oom_except),
    Measurement(
        "halved-without-accumulation",
        "distance from the weights of batch 64 after 50 steps",
        "%",
        halved_without_accumulation,
    ),
)


def measure(rule: str, variant: str, device: str) -> float:
    """Run one measurement in a process of its own, in which freed memory goes back to the system at once."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    command = [sys.executable, __file__, "--device", device, "--rule", rule, "--variant", variant]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(result.stdout))


def main() -> None:
    """Print one row per rule, or with `--variant` one number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rule", choices=[measurement.rule for measurement in MEASUREMENTS])
    parser.add_argument("--variant", choices=VARIANTS)
    arguments = parser.parse_args()
    chosen = [measurement for measurement in MEASUREMENTS if arguments.rule in {None, measurement.rule}]
    if arguments.variant:
        print(json.dumps(chosen[0].run(torch.device(arguments.device), arguments.variant)))
        return
    print(f"torch {torch.__version__}, {arguments.device}\n\n| rule | wrong | right | what |\n|---|---|---|---|")
    for measurement in chosen:
        if measurement.needs_gpu and arguments.device == "cpu":
            continue
        wrong, right = (measure(measurement.rule, variant, arguments.device) for variant in VARIANTS)
        unit = f" {measurement.unit}" if measurement.unit else ""
        print(f"| {measurement.rule} | {wrong:.3g}{unit} | {right:.3g}{unit} | {measurement.what} |", flush=True)


if __name__ == "__main__":
    main()
