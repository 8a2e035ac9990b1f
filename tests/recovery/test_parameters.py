"""Gradients of everything that is trained, whoever holds it: kept, accumulated, saved and cleared."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import UsageError
from oomph.recovery import Guard

from .faults import FaultIn
from .nets import differences, plain_batch, plain_net


class Weighted(nn.Module):
    """A loss with parameters of its own, which only the optimizer knows."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.ones(2))
        self.register_buffer("calls", torch.zeros(()))
        self.calls: Tensor

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        return (outputs * self.weights - targets).pow(2).mean()


def weighted(**options: Any) -> tuple[Guard, Weighted]:
    net, loss = plain_net(torch.float64), Weighted().double()
    optimizer = torch.optim.SGD([*net.parameters(), *loss.parameters()], lr=0.1)
    return oomph.guard(model=net, optimizer=optimizer, loss=loss, **options), loss


def double_batch(samples: int = 8, seed: int = 1) -> tuple[Tensor, Tensor]:
    return plain_batch(samples, seed, torch.float64)


class Late:
    """A forward that runs short in the backward of its n-th piece."""

    def __init__(self, loss: Any, at: int) -> None:
        self.loss, self.at, self.calls = loss, at, 0

    def __call__(self, model: nn.Module, piece: Any) -> Any:
        outputs = model(piece[0])
        outputs.register_hook(self._fail)
        return self.loss(outputs, piece[1])

    def _fail(self, gradient: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.at:
            raise MemoryError
        return gradient


def test_a_retry_does_not_double_the_gradients_of_a_losss_own_parameters() -> None:
    truth, expected = weighted(pieces=4)
    truth.step(double_batch())
    guard, found = weighted(pieces=2)
    report = guard.step(double_batch(), forward=Late(found, 2))
    assert (report.retries, report.pieces) == (1, 4)
    torch.testing.assert_close(found.weights, expected.weights, rtol=0, atol=0)


def test_a_retry_does_not_double_the_gradients_of_what_has_thawed() -> None:
    nets = [plain_net(torch.float64), plain_net(torch.float64)]
    for net, pieces, at in ((nets[0], 4, 0), (nets[1], 2, 2)):
        net[0].requires_grad_(False)  # type: ignore[index]
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss, pieces=pieces)
        net[0].requires_grad_(True)  # type: ignore[index]
        guard.step(double_batch(), forward=Late(nn.functional.mse_loss, at))
    assert differences(dict(nets[0].state_dict()), dict(nets[1].state_dict())) == []


def test_what_has_thawed_or_came_later_is_accumulated_like_the_rest() -> None:
    net, plain = plain_net(torch.float64), plain_net(torch.float64)
    net[0].requires_grad_(False)  # type: ignore[index]
    optimizer = torch.optim.SGD(net[0].parameters(), lr=0.0)  # type: ignore[index]
    scale, plain_scale = (nn.Parameter(torch.ones((), dtype=torch.float64)) for _ in range(2))
    guard = oomph.guard(
        model=net, optimizer=optimizer, forward=lambda model, piece: (model(piece[0]) * scale - piece[1]).pow(2).mean()
    )
    net[0].requires_grad_(True)  # type: ignore[index]
    optimizer.add_param_group({"params": [scale]})
    inputs, targets = double_batch()
    guard.step((inputs[:3], targets[:3]), update=False)
    guard.step((inputs[3:], targets[3:]), update=False)
    (plain(inputs) * plain_scale - targets).pow(2).mean().backward()
    for one, other in zip([*net.parameters(), scale], [*plain.parameters(), plain_scale], strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-12, atol=1e-14)


def test_a_resumed_run_has_the_losss_parameters_and_their_gradients() -> None:
    """Saved in the middle of an accumulation: gradients, what they count, and weights outside the model."""
    guard, loss = weighted()
    guard.step(double_batch(seed=1))
    guard.step(double_batch(3, seed=2), update=False)
    state = guard.state_dict()
    state = {**state, "outside": {name: one.clone() for name, one in state["outside"].items()}}
    state["model"] = {name: one.clone() for name, one in state["model"].items()}
    other, resumed = weighted()
    other.load_state_dict(state)
    assert other.pending == 3.0
    for one in (guard, other):
        one.step(double_batch(seed=3))
    assert differences(other.state_dict(), guard.state_dict()) == []
    assert torch.equal(loss.weights, resumed.weights)


def test_a_transaction_keeps_gradients_that_only_the_optimizer_knows() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    transaction = oomph.Transaction(plain_net(), torch.optim.SGD([weight], lr=0.1))

    def work() -> None:
        (weight * 2).sum().backward()
        torch.zeros(1).tanh()

    with FaultIn("tanh"):
        assert transaction.run(work) is not None
    assert weight.grad.tolist() == [1.0, 1.0]


def test_two_guards_over_one_model_leave_each_other_no_gradients() -> None:
    """A GAN: the generator's loss has gradients for the discriminator too, which its optimizer doesn't take."""

    def build() -> tuple[nn.ModuleDict, list[torch.optim.Optimizer]]:
        torch.manual_seed(0)
        both = nn.ModuleDict({"generator": nn.Linear(4, 4), "judge": nn.Linear(4, 1)})
        return both, [torch.optim.SGD(both[name].parameters(), lr=0.1) for name in ("judge", "generator")]

    def judge(model: Any, piece: Any) -> Tensor:
        found: Tensor = model["judge"](model["generator"](piece[0]).detach()).mean() - model["judge"](piece[0]).mean()
        return found

    def generate(model: Any, piece: Any) -> Tensor:
        return -model["judge"](model["generator"](piece[0])).tanh().mean()

    guarded, optimizers = build()
    guards = [
        oomph.guard(model=guarded, optimizer=optimizer, forward=forward)
        for optimizer, forward in zip(optimizers, (judge, generate), strict=True)
    ]
    plain, own = build()
    for seed in range(3):
        batch = plain_batch(seed=seed)
        for guard in guards:
            guard.step(batch)
        for optimizer, forward in zip(own, (judge, generate), strict=True):
            plain.zero_grad()
            forward(plain, batch).backward()
            optimizer.step()
    assert differences(dict(guarded.state_dict()), dict(plain.state_dict())) == []
    assert all(one.grad is None for one in guarded.parameters())


def test_gradients_of_a_parameter_in_the_place_of_another_are_cleared_too() -> None:
    """As those do who grow what they train: in the model and in the optimizer's list, which stays."""
    guards = []
    for grows in (True, False):
        net = plain_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)
        guard.step(plain_batch())
        if grows:
            layer = next(one for one in net.modules() if isinstance(one, nn.Linear))
            layer.weight = nn.Parameter(layer.weight.detach().clone())
            optimizer.param_groups[0]["params"][0] = layer.weight
        for seed in range(2):
            guard.step(plain_batch(seed=seed))
            assert all(one.grad is None for one in net.parameters())
        guards.append(guard)
    assert differences(guards[0].state_dict(), guards[1].state_dict()) == []


def test_a_guard_can_not_be_copied_and_says_so() -> None:
    guard, _ = weighted()
    guard.step(double_batch())
    for one in (guard, oomph.Transaction(guard.model)):
        with pytest.raises(UsageError, match="can't be copied"):
            copy.deepcopy(one)


def test_parameters_that_an_optimizer_lets_go_of_are_forgotten() -> None:
    """Single numbers among them, which are looked at by their places."""
    net, scale = plain_net(), nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([{"params": list(net.parameters())}, {"params": [scale]}], lr=0.1)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=nn.functional.mse_loss)
    guard.step(plain_batch())
    del optimizer.param_groups[1]
    guard.step(plain_batch())
    assert not any(one is scale for one in guard._gradients.parameters)
