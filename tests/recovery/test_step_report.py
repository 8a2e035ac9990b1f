"""What a step reports: the norm of its gradients before clipping, and the learning rates that it used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import oomph

from .faults import FaultIn
from .nets import plain_batch, plain_net


def norm_by_hand(batch: Any) -> float:
    net = plain_net(torch.float64)
    nn.functional.mse_loss(net(batch[0]), batch[1]).backward()
    return float(torch.cat([param.grad.flatten() for param in net.parameters() if param.grad is not None]).norm())


@pytest.mark.parametrize("scale", [None, 1024.0])
@pytest.mark.parametrize("clip", [None, 1e-3, 1e3])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_the_norm_is_that_before_clipping(clip: float | None, micro_batch: int | None, scale: float | None) -> None:
    net, batch = plain_net(torch.float64), plain_batch(dtype=torch.float64)
    guard = oomph.guard(
        model=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
        loss=nn.functional.mse_loss,
        clip_grad_norm=clip,
        micro_batch=micro_batch,
        scaler=None if scale is None else torch.amp.GradScaler("cpu", init_scale=scale),
    )
    report = guard.step(batch)
    assert isinstance(report.grad_norm, torch.Tensor), "it stays on the device until it is read"
    assert float(report.grad_norm) == pytest.approx(norm_by_hand(batch), rel=1e-9)


def test_a_clipping_function_reports_what_it_returns() -> None:
    norms: list[float] = []

    def clip(parameters: Any) -> Any:
        norm = nn.utils.clip_grad_norm_(parameters, 0.01, norm_type=float("inf"))
        norms.append(float(norm))
        return norm

    net = plain_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, clip_grad_norm=clip)
    report = guard.step(plain_batch())
    assert report.grad_norm is not None
    assert [float(report.grad_norm)] == norms


def test_learning_rates_are_those_used_before_the_schedulers_step() -> None:
    net = plain_net()
    groups: list[dict[str, Any]] = [{"params": net[0].parameters()}, {"params": net[2].parameters(), "lr": 0.02}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    guard = oomph.guard(model=net, optimizer=[optimizer], loss=nn.functional.mse_loss, scheduler=scheduler)
    rates = [guard.step(plain_batch()).learning_rates for _ in range(2)]
    with FaultIn("addmm", times=1):
        rates.append(guard.step(plain_batch()).learning_rates)
    assert rates == [(0.1, 0.02), (0.05, 0.01), (0.025, 0.005)]


def test_a_step_without_an_update_has_neither() -> None:
    net = plain_net()
    guard = oomph.guard(
        model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), loss=nn.functional.mse_loss, micro_batch=4
    )
    guard.step(plain_batch())
    report = guard.step(plain_batch(), update=False)
    assert (report.grad_norm, report.learning_rates, report.metrics) == (None, (), {})
