"""`guard.backward`: the gradients of a plain backward, in micro-batches and with retries, without the update."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.errors import RetriesExhausted, UsageError
from oomph.recovery import Guard

from .faults import FaultIn
from .nets import Rig, cloned, differences, plain_batch, plain_net

mse_loss = nn.functional.mse_loss


def double_batch(seed: int = 1, samples: int = 8) -> tuple[Tensor, Tensor]:
    return plain_batch(samples, seed, torch.float64)


def pairwise_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs @ targets.T, torch.arange(len(outputs)))


def sum_of_squares(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum()


def build(loss: Any = mse_loss, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer, Guard]:
    net = plain_net(torch.float64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return net, optimizer, oomph.guard(model=net, optimizer=optimizer, loss=loss, **options)


def assert_same_weights(net: nn.Module, plain: nn.Module) -> None:
    for param, expected in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(param, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("loss", [mse_loss, pairwise_loss], ids=["one pass", "two passes"])
@pytest.mark.parametrize("micro_batch", [None, 4, 3])
def test_a_loop_of_ones_own_is_trained_as_by_a_plain_backward(loss: Any, micro_batch: int | None) -> None:
    net, optimizer, guard = build(loss, micro_batch=micro_batch)
    plain = plain_net(torch.float64)
    plain_optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    for seed in range(3):
        batch = double_batch(seed)
        optimizer.zero_grad()
        guard.backward(batch)
        optimizer.step()
        plain_optimizer.zero_grad()
        loss(plain(batch[0]), batch[1]).backward()
        plain_optimizer.step()
    assert_same_weights(net, plain)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_scaled_batches_of_different_sizes_are_added(micro_batch: int | None) -> None:
    """As in a loop that divides each loss by the number of accumulated batches."""
    net, _, guard = build(micro_batch=micro_batch)
    plain = plain_net(torch.float64)
    for seed, samples in ((0, 3), (1, 8), (2, 5)):
        batch = double_batch(seed, samples)
        guard.backward(batch, scale=1 / 3)
        (mse_loss(plain(batch[0]), batch[1]) / 3).backward()
        for param, expected in zip(net.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(param.grad, expected.grad, rtol=1e-12, atol=1e-14)
    assert guard.notices == ()


@pytest.mark.parametrize("operation", ["addmm", "tanh_backward", "mm"])
def test_a_retry_adds_nothing_twice(operation: str) -> None:
    states = []
    for fails, micro_batch in ((False, 4), (True, None)):
        net, _, guard = build(micro_batch=micro_batch)
        guard.backward(double_batch(0, 4))
        with FaultIn(operation, times=int(fails)):
            report = guard.backward(double_batch(1), scale=0.5)
        assert (report.retries, report.micro_batches) == (int(fails), 2)
        states.append([cloned(param.grad) for param in net.parameters()])
    assert differences(*states) == []


@pytest.mark.parametrize("loss", [mse_loss, sum_of_squares], ids=["mean", "sum"])
def test_the_check_tells_a_mean_from_a_sum(loss: Any) -> None:
    net, _, guard = build(None, reduction="either", micro_batch=3)
    plain, batch = plain_net(torch.float64), double_batch()
    guard.backward(batch, forward=lambda model, batch: loss(model(batch[0]), batch[1]))
    loss(plain(batch[0]), batch[1]).backward()
    for param, expected in zip(net.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(param.grad, expected.grad, rtol=1e-12, atol=1e-14)


def test_what_is_neither_is_not_split() -> None:
    _, _, guard = build(None, reduction="either", micro_batch=3)
    with pytest.raises(UsageError, match="micro_batch=3 would change the gradient"):
        guard.backward(double_batch(), forward=lambda model, batch: model(batch[0]).max())


def test_it_neither_updates_nor_clears() -> None:
    """Weights, optimizer, scheduler, EMA and scaler are the caller's; gradients are neither clipped nor unscaled."""
    rig = Rig(micro_batch=4)
    rig.guard.step(rig.batches()[0])
    before = cloned(rig.state())
    report = rig.guard.backward(rig.batches()[1])
    after = rig.state()
    for part in ("optimizers", "schedulers", "ema"):
        assert differences(after[part], before[part]) == [], part
    assert all(torch.equal(after["model"][name], before["model"][name]) for name, _ in rig.net.named_parameters())
    assert not report.updated
    assert (report.grad_norm, report.learning_rates) == (None, ())
    norm = torch.stack([param.grad.norm() for param in rig.net.parameters() if param.grad is not None]).norm()
    assert float(norm) > 0.5, "the guard's clip_grad_norm belongs to its own update"
    grads = [cloned(param.grad) for param in rig.net.parameters()]
    rig.guard.backward(rig.batches()[1], scale=0.0)
    assert differences([param.grad for param in rig.net.parameters()], grads) == []


def test_an_error_leaves_the_gradients_of_earlier_batches() -> None:
    net, _, guard = build()
    guard.backward(double_batch(0))
    grads = [cloned(param.grad) for param in net.parameters()]
    with pytest.raises(RetriesExhausted), FaultIn("addmm"):
        guard.backward(double_batch(1))
    assert differences([param.grad for param in net.parameters()], grads) == []
    with pytest.raises(ZeroDivisionError):
        guard.backward(double_batch(1), forward=lambda model, batch: model(batch[0]).mean() / (1 // 0))
    assert differences([param.grad for param in net.parameters()], grads) == []


def test_gradients_are_scaled_by_the_scaler_that_the_caller_unscales() -> None:
    net, optimizer, _ = build()
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    guard = oomph.guard(model=net, optimizer=optimizer, loss=mse_loss, scaler=scaler, micro_batch=4)
    plain, batch = plain_net(torch.float64), double_batch()
    guard.backward(batch)
    scaler.step(optimizer)
    scaler.update()
    mse_loss(plain(batch[0]), batch[1]).backward()
    torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9).step()
    assert_same_weights(net, plain)


def test_it_works_for_optimizers_that_step_twice() -> None:
    """As SAM: the gradient at perturbed weights decides."""
    net, optimizer, guard = build(micro_batch=4)
    plain, batch = plain_net(torch.float64), double_batch()
    plain_optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)

    def sharpness_aware(model: nn.Module, backward: Any, optimizer: torch.optim.Optimizer) -> None:
        backward()
        moves = [0.05 * param.grad for param in model.parameters() if param.grad is not None]
        with torch.no_grad():
            torch._foreach_add_(list(model.parameters()), moves)
        optimizer.zero_grad()
        backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()

    sharpness_aware(net, lambda: guard.backward(batch), optimizer)
    sharpness_aware(plain, lambda: mse_loss(plain(batch[0]), batch[1]).backward(), plain_optimizer)
    assert_same_weights(net, plain)


class Tokens(nn.Module):
    """An untrained language model: the losses of all tokens are nearly equal."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.embed(ids))


def shifted_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    logits, labels = model(batch["ids"])[:, :-1], batch["labels"][:, 1:]
    return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def test_the_labels_that_explain_a_loss_best_are_counted() -> None:
    """In single precision, means over all labels and over all but the first differ by less than the check allows."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(50, (8, 12), generator=generator)
    lengths = torch.tensor([3, 12, 11, 4, 12, 3, 5, 12])
    batch = {"ids": ids, "labels": ids.where(torch.arange(12) < lengths[:, None], -100)}
    model, plain = Tokens(), Tokens()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = oomph.guard(model=model, optimizer=optimizer, forward=shifted_loss, micro_batch=1)
    guard.backward(batch)
    shifted_loss(plain, batch).backward()
    for param, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(param.grad, expected.grad, rtol=1e-4, atol=1e-7)
