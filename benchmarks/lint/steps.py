"""Measures what the mistakes of the rules about accumulation and mixed precision cost.

    python benchmarks/lint/steps.py [--device cpu|cuda] [rule …]

Runs the wrong and the right code of each rule with a small net and prints one row of a Markdown table per rule.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

GROUP = 8
MICRO_BATCH = 4
WIDTH = 64
CLASSES = 10
Row = tuple[str, str, str]  # wrong, right, what was measured

loss_fn = nn.CrossEntropyLoss()


class Setting:
    """A net of 10,000 parameters, its data and its device."""

    def __init__(self, device: str) -> None:
        self.device = device
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), nn.Linear(128, CLASSES)).to(device)
        self.teacher = nn.Linear(WIDTH, CLASSES).to(device)

    def batches(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield micro-batches whose labels a linear teacher gives."""
        for _ in range(count):
            x = torch.randn(MICRO_BATCH, WIDTH, device=self.device)
            with torch.no_grad():
                y = self.teacher(x).argmax(1)
            yield x, y

    def gradient(self) -> Tensor:
        """Return all gradients as one vector, and set them to None."""
        parts = [param.grad.flatten() for param in self.net.parameters() if param.grad is not None]
        self.net.zero_grad()
        return torch.cat(parts).clone()

    def large_batch_gradient(self, group: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Return the gradient of a group as one batch."""
        x, y = (torch.cat(part) for part in zip(*group, strict=True))
        loss_fn(self.net(x), y).backward()
        return self.gradient()

    def loss(self) -> float:
        """Return the loss on new data."""
        torch.manual_seed(1)
        with torch.no_grad():
            return sum(float(loss_fn(self.net(x), y)) for x, y in self.batches(64)) / 64


def relative_error(gradient: Tensor, reference: Tensor) -> str:
    """Return the distance of two gradients as a percentage of the reference."""
    return f"{float((gradient - reference).norm() / reference.norm()):.2%}"


def grad_zeroed_while_accumulating(device: str) -> Row:
    """Compare the gradient at the step with that of the large batch."""
    setting = Setting(device)
    group = list(setting.batches(GROUP))
    reference = setting.large_batch_gradient(group)
    results = []
    for is_wrong in (True, False):
        for x, y in group:
            if is_wrong:
                setting.net.zero_grad()
            (loss_fn(setting.net(x), y) / GROUP).backward()
        results.append(relative_error(setting.gradient(), reference))
    return results[0], results[1], f"error of the gradient of {GROUP} micro-batches"


def grad_never_zeroed(device: str) -> Row:
    """Compare the loss after 200 steps."""
    results = []
    for is_wrong in (True, False):
        setting = Setting(device)
        optimizer = torch.optim.SGD(setting.net.parameters(), lr=0.1)
        for x, y in setting.batches(200):
            if not is_wrong:
                optimizer.zero_grad()
            loss_fn(setting.net(x), y).backward()
            optimizer.step()
        results.append(f"{setting.loss():.3g}")
    return results[0], results[1], "loss after 200 steps of SGD"


def last_group_not_stepped(device: str) -> Row:
    """Count the micro-batches of an epoch whose gradients reach no step."""
    results = []
    count = 2 * GROUP - 1
    for is_wrong in (True, False):
        setting = Setting(device)
        pending = 0
        for i, (x, y) in enumerate(setting.batches(count)):
            (loss_fn(setting.net(x), y) / GROUP).backward()
            pending += 1
            if (i + 1) % GROUP == 0 or (not is_wrong and i + 1 == count):
                pending = 0
        results.append(f"{pending} of {count}")
    return results[0], results[1], "micro-batches of an epoch that train nothing"


def accumulation_counter(device: str) -> Row:
    """Compare the gradient at the first step with that of the first group."""
    setting = Setting(device)
    group = list(setting.batches(GROUP))
    reference = setting.large_batch_gradient(group)
    results = []
    for offset in (0, 1):
        for i, (x, y) in enumerate(group):
            (loss_fn(setting.net(x), y) / GROUP).backward()
            if (i + offset) % GROUP == 0:
                break
        results.append(relative_error(setting.gradient(), reference))
    return results[0], results[1], "error of the gradient at the first step"


def loss_not_divided(device: str) -> Row:
    """Compare the gradient of a group with that of the large batch."""
    return _group_norms(device, (1, GROUP))


def loss_divided_twice(device: str) -> Row:
    """Compare the gradient of a group with that of the large batch."""
    return _group_norms(device, (GROUP * GROUP, GROUP))


def _group_norms(device: str, divisors: tuple[int, int]) -> Row:
    setting = Setting(device)
    group = list(setting.batches(GROUP))
    reference = setting.large_batch_gradient(group).norm()
    results = []
    for divisor in divisors:
        for x, y in group:
            (loss_fn(setting.net(x), y) / divisor).backward()
        results.append(f"{float(setting.gradient().norm() / reference):.3g}")
    return results[0], results[1], f"norm of the gradient of {GROUP} micro-batches; 1 is that of one large batch"


def clip_without_unscale(device: str) -> Row:
    """Compare the norm of the gradient that the optimizer sees."""
    results = []
    for is_wrong in (True, False):
        setting = Setting(device)
        scaler = torch.amp.GradScaler(device)
        optimizer = torch.optim.SGD(setting.net.parameters(), lr=0.1)
        x, y = next(setting.batches(1))
        scaler.scale(100 * loss_fn(setting.net(x), y)).backward()
        if not is_wrong:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(setting.net.parameters(), 1.0)
        if is_wrong:
            scaler.unscale_(optimizer)  # as scaler.step does
        results.append(f"{float(setting.gradient().norm()):.3g}")
    return results[0], results[1], "norm of a large gradient after clipping to 1"


def scheduler_per_micro_batch(device: str) -> Row:
    """Compare the learning rate at half of the training."""
    steps = 100
    results = []
    for is_wrong in (True, False):
        setting = Setting(device)
        optimizer = torch.optim.SGD(setting.net.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
        for i in range(steps // 2 * GROUP):
            is_step = (i + 1) % GROUP == 0
            if is_step:
                optimizer.step()
            if is_wrong or is_step:
                scheduler.step()
        results.append(f"{scheduler.get_last_lr()[0]:.3g}")
    return results[0], results[1], "learning rate after half of the steps of a linear decay from 0.1"


def half_with_scaler(device: str) -> Row:
    """Show the error of the scaler."""
    setting = Setting(device)
    scaler = torch.amp.GradScaler(device)
    setting.net.half()
    optimizer = torch.optim.SGD(setting.net.parameters(), lr=0.1)
    x, y = next(setting.batches(1))
    scaler.scale(loss_fn(setting.net(x.half()).float(), y)).backward()
    return _error(lambda: scaler.step(optimizer)), "no error", "first step"


def scaler_with_bf16(device: str) -> Row:
    """Compare the time of backward and step."""
    results = []
    for is_wrong in (True, False):
        setting = Setting(device)
        scaler = torch.amp.GradScaler(device, enabled=is_wrong)
        optimizer = torch.optim.SGD(setting.net.parameters(), lr=0.01)
        times = []
        for x, y in setting.batches(300):
            optimizer.zero_grad()
            with torch.autocast(device, dtype=torch.bfloat16):
                loss = loss_fn(setting.net(x), y)
            _wait(device)
            start = time.perf_counter()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            _wait(device)
            times.append(time.perf_counter() - start)
        results.append(f"{sorted(times)[len(times) // 2] * 1e6:.0f} µs")
    return results[0], results[1], "backward and step of a small net"


def backward_in_autocast(device: str) -> Row:
    """Compare the gradients of a head that was computed in float32."""
    setting = Setting(device)
    head = nn.Linear(CLASSES, CLASSES).to(device)
    x, y = next(setting.batches(1))
    gradients = []
    for is_wrong in (True, False):
        head.zero_grad()
        with torch.autocast(device, dtype=torch.bfloat16):
            features = setting.net(x)
            with torch.autocast(device, enabled=False):
                loss = loss_fn(head(head(features.float())), y)
            if is_wrong:
                loss.backward()
        if not is_wrong:
            loss.backward()
        assert head.weight.grad is not None  # noqa: S101  backward has run
        gradients.append(head.weight.grad.clone())
    return relative_error(*gradients), "0.00%", "error of the gradient of a float32 part, by bfloat16 in its backward"


def deprecated_amp(device: str) -> Row:
    """Show the warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(torch, device).amp.autocast()
    message = str(caught[0].message) if caught else "no warning"
    category = caught[0].category.__name__ if caught else ""
    return f"{category}: {message}", "no warning", "first call"


def scaler_not_updated(device: str) -> Row:
    """Show the error of the second step."""
    setting = Setting(device)
    scaler = torch.amp.GradScaler(device)
    optimizer = torch.optim.SGD(setting.net.parameters(), lr=0.1)

    def train() -> None:
        for x, y in setting.batches(2):
            optimizer.zero_grad()
            scaler.scale(loss_fn(setting.net(x), y)).backward()
            scaler.step(optimizer)

    return _error(train), "no error", "second step"


def scaler_bypassed(device: str) -> Row:
    """Compare the loss after one step."""
    results = []
    for is_wrong in (True, False):
        setting = Setting(device)
        scaler = torch.amp.GradScaler(device)
        optimizer = torch.optim.SGD(setting.net.parameters(), lr=0.1)
        x, y = next(setting.batches(1))
        scaler.scale(loss_fn(setting.net(x), y)).backward()
        if is_wrong:
            optimizer.step()
        else:
            scaler.step(optimizer)
        results.append(f"{setting.loss():.3g}")
    return results[0], results[1], "loss after one step of SGD"


def unscale_after_step(device: str) -> Row:
    """Show the error."""
    setting = Setting(device)
    scaler = torch.amp.GradScaler(device)
    optimizer = torch.optim.SGD(setting.net.parameters(), lr=0.1)
    x, y = next(setting.batches(1))
    scaler.scale(loss_fn(setting.net(x), y)).backward()
    scaler.step(optimizer)
    return _error(lambda: scaler.unscale_(optimizer)), "no error", "first step"


def fp16_adam_eps(device: str) -> Row:
    """Count the weights that are NaN after one step."""
    results = []
    for eps in (1e-8, 1e-4):
        setting = Setting(device)
        setting.net.half()
        optimizer = torch.optim.Adam(setting.net.parameters(), lr=1e-3, eps=eps)
        x, y = next(setting.batches(1))
        loss_fn(setting.net(x.half()).float(), y).backward()
        optimizer.step()
        weights = torch.cat([param.detach().flatten() for param in setting.net.parameters()])
        results.append(f"{float((~torch.isfinite(weights)).float().mean()):.0%}")
    return results[0], results[1], "share of the weights that are NaN after one step of Adam"


def _error(function: Callable[[], object]) -> str:
    try:
        function()
    except (ValueError, RuntimeError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


RULES: tuple[Callable[[str], Row], ...] = (
    grad_zeroed_while_accumulating,
    grad_never_zeroed,
    last_group_not_stepped,
    accumulation_counter,
    loss_not_divided,
    loss_divided_twice,
    clip_without_unscale,
    scheduler_per_micro_batch,
    half_with_scaler,
    scaler_with_bf16,
    backward_in_autocast,
    deprecated_amp,
    scaler_not_updated,
    scaler_bypassed,
    unscale_after_step,
    fp16_adam_eps,
)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rules", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"| rule | wrong | right | measured ({arguments.device}, torch {torch.__version__}) |\n|---|---|---|---|")
    for function in RULES:
        name = function.__name__.replace("_", "-")
        if not arguments.rules or name in arguments.rules:
            print(f"| `{name}` |", " | ".join(function(arguments.device)), "|", flush=True)


if __name__ == "__main__":
    main()
