"""Predicting is read-only: live models, optimizers, losses and the global state are as before."""

from __future__ import annotations

import functools
import gc
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oomph.errors import UsageError
from oomph.job import Job
from oomph.settings import Settings
from oomph.trace import CudaDevice, StorageKind, Trace, trace_step


class Net(nn.Module):
    """A live model with everything that a trace could touch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 16)
        self.tied = self.first
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(1))
        self.table = torch.arange(16.0)  # a plain attribute
        self.history: list[Tensor] = []
        self.calls = 0
        self.frozen = nn.Parameter(torch.ones(16), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.scale.mul_(1.5)
        self.table += 1
        out = self.last(F.relu(self.norm(self.tied(x)))) * self.scale + self.table + self.frozen
        self.history.append(out)
        return out


def batch(count: int, _: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 16), torch.randn(count, 16)


def live_model() -> tuple[Net, torch.optim.Optimizer]:
    """Return a model in the middle of training: gradients, optimizer state, a hook, one part in eval mode."""
    torch.manual_seed(3)
    model = Net()
    groups: list[dict[str, Any]] = [
        {"params": model.first.parameters(), "lr": 0.1},
        {"params": model.last.parameters()},
    ]
    optimizer = torch.optim.AdamW(groups)
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
    model.norm.eval()
    model.history.clear()
    model.last.register_forward_hook(lambda module, inputs, output: output + model.first.bias.sum())
    forward = model.first.forward
    model.first.forward = functools.partial(forward)  # type: ignore[method-assign]  # as accelerate's hooks do
    return model, optimizer


def snapshot(model: Net, optimizer: torch.optim.Optimizer) -> list[Any]:
    tensors = [*model.parameters(), *model.buffers(), model.table]
    grads = [None if tensor.grad is None else tensor.grad for tensor in tensors]
    state = [value for param in optimizer.state for value in optimizer.state[param].values()]
    return [
        [id(tensor) for tensor in tensors],
        [type(tensor) for tensor in tensors],
        [tensor.requires_grad for tensor in tensors],
        [tensor.detach().numpy().tobytes() for tensor in tensors],
        [None if grad is None else (id(grad), grad.numpy().tobytes()) for grad in grads],
        [(id(value), value.numpy().tobytes()) for value in state],
        [[id(param) for param in group["params"]] for group in optimizer.param_groups],
        [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups],
        [module.training for module in model.modules()],
        [(len(m._forward_hooks), len(m._forward_pre_hooks), sorted(m.__dict__)) for m in model.modules()],
        model.calls,
        list(model.history),
    ]


def global_state() -> list[Any]:
    numpy_state: Any = np.random.get_state()
    return [
        torch.get_rng_state().tolist(),
        random.getstate(),
        (numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:]),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        [(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")],
        torch.is_autocast_cache_enabled(),
        [getattr(torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic")],
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        [
            torch.autocast.__init__,
            torch.compile,
            torch.load,
            torch.jit.script,
            nn.Module._apply,
            torch.cuda.synchronize,
        ],
        torch.clear_autocast_cache,
        gc.isenabled(),
        list(warnings.filters),
        torch.overrides._get_current_function_mode_stack(),
    ]


def traced(job: Job, **settings: Any) -> Trace:
    return trace_step(job, Settings(**{"batch": 8, "size": 16, **settings}), CudaDevice())


def bytes_of(trace: Trace, kind: StorageKind) -> int:
    live = {event - 1 for event in trace.events[: trace.training_events] if event > 0}
    return sum(trace.storages[index].size for index in live if trace.storages[index].kind is kind)


@pytest.mark.medium
@pytest.mark.parametrize("precision", ["fp32", "bf16", "amp-fp16"])
def test_live_model_and_optimizer_stay_as_they_are(precision: str) -> None:
    model, optimizer = live_model()
    before, state_before = snapshot(model, optimizer), global_state()
    job = Job(model=lambda: model, batch=batch, loss=F.mse_loss, optimizer=lambda _: optimizer)
    trace = traced(job, precision=precision)
    assert snapshot(model, optimizer) == before
    assert global_state() == state_before
    count = sum(parameter.numel() for parameter in model.parameters())
    assert bytes_of(trace, StorageKind.PARAMETER) >= count * (2 if precision == "bf16" else 4)


@pytest.mark.medium
def test_live_optimizer_updates_the_copied_parameters() -> None:
    model, optimizer = live_model()
    live = traced(Job(model=lambda: model, batch=batch, loss=F.mse_loss, optimizer=lambda _: optimizer))
    moments = 2 * 4 * sum(param.numel() for group in optimizer.param_groups for param in group["params"])
    assert bytes_of(live, StorageKind.STATE) >= moments
    assert not [s for s in live.storages if "zeros_like" in s.op and s.kind is StorageKind.STATE]  # it has its state


@pytest.mark.medium
def test_objects_that_clean_up_when_they_are_deleted_are_not_copied() -> None:
    """The copy of a temporary folder would delete the original's."""

    class Scratch:
        is_open = True

        def __del__(self) -> None:
            closed.append(self)

    closed: list[Scratch] = []
    model, optimizer = live_model()
    model.scratch = Scratch()  # type: ignore[assignment]
    traced(Job(model=lambda: model, batch=batch, loss=F.mse_loss, optimizer=lambda _: optimizer))
    gc.collect()
    assert closed == []


def test_step_that_runs_the_live_model_instead_of_its_argument() -> None:
    model, optimizer = live_model()
    before = snapshot(model, optimizer)

    def step(_: nn.Module, samples: Any) -> Tensor:
        model.zero_grad()
        return F.mse_loss(model(samples[0]), samples[1])

    assert traced(Job(model=lambda: model, batch=batch, step=step, optimizer=lambda _: optimizer)).storages
    assert snapshot(model, optimizer) == before


GLOBAL_NET = nn.Linear(16, 16)
GLOBAL_WEIGHT = torch.ones(16, requires_grad=True)


def global_step(_: nn.Module, samples: Any) -> Tensor:
    return helper(samples[0]).square().mean()


def helper(x: Tensor) -> Tensor:
    GLOBAL_WEIGHT.data.mul_(2)
    return GLOBAL_NET(x) * GLOBAL_WEIGHT


def test_global_objects_stay_as_they_are() -> None:
    weight = GLOBAL_NET.weight.detach().clone()
    trace = traced(
        Job(
            model=lambda: GLOBAL_NET,
            batch=batch,
            step=global_step,
            optimizer=lambda _: torch.optim.SGD(GLOBAL_NET.parameters()),
        )
    )
    assert bytes_of(trace, StorageKind.GRADIENT) >= 3 * weight.nbytes
    assert torch.equal(GLOBAL_NET.weight, weight)
    assert GLOBAL_NET.weight.grad is None
    assert GLOBAL_WEIGHT.grad is None
    assert torch.equal(GLOBAL_WEIGHT, torch.ones(16))


def test_class_attribute_that_no_copy_reaches_is_not_written() -> None:
    class Config:
        weight = torch.ones(16, requires_grad=True)

    def step(model: nn.Module, samples: Any) -> Tensor:
        Config.weight.data.mul_(2)
        return (model(samples[0]) * Config.weight).mean()

    traced(Job(model=lambda: nn.Linear(16, 16), batch=batch, step=step, optimizer=sgd))
    assert Config.weight.grad is None
    assert torch.equal(Config.weight, torch.ones(16))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.1)


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


def careless(model: nn.Module, samples: Any) -> Tensor:
    """Change global settings, as code at the top of a script does."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(True)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.set_autocast_enabled("cpu", False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.simplefilter("error")
    gc.enable()
    return F.mse_loss(model(samples[0]), samples[1])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"step": careless}, None),
        ({"step": interrupt}, KeyboardInterrupt),
        ({"step": lambda model, samples: 1 / 0}, UsageError),
        ({"model": interrupt, "step": careless}, KeyboardInterrupt),
        ({"optimizer": interrupt, "step": careless}, KeyboardInterrupt),
    ],
)
def test_global_state_is_restored(changes: dict[str, Callable[..., Any]], error: type[BaseException] | None) -> None:
    before = global_state()
    parts: dict[str, Any] = {"model": lambda: nn.Linear(16, 16), "batch": batch, "optimizer": sgd, **changes}
    job = Job(**parts)
    if error is None:
        traced(job)
    else:
        with pytest.raises(error):
            traced(job)
    assert global_state() == before


def test_other_models_in_the_step_are_counted() -> None:
    teacher = nn.Linear(16, 16)

    def step(model: nn.Module, samples: Any) -> Tensor:
        with torch.no_grad():
            target = teacher(samples[0])
        return F.mse_loss(model(samples[0]), target)

    trace = traced(Job(model=lambda: nn.Linear(16, 16), batch=batch, step=step, optimizer=sgd))
    assert bytes_of(trace, StorageKind.PARAMETER) == 2 * 4 * (16 * 16 + 16)


@pytest.mark.medium
def test_live_objects_make_a_job() -> None:
    model, optimizer = live_model()
    before = snapshot(model, optimizer)
    inputs, targets = torch.randn(3, 16), torch.randn(3, 16)
    job = Job.of(model, (inputs, targets), loss=F.mse_loss, optimizer=optimizer)
    trace = traced(job, batch=8)
    assert snapshot(model, optimizer) == before
    sizes = {storage.size for storage in trace.storages if storage.kind is StorageKind.INPUT}
    assert sizes == {8 * 16 * 4}
