"""Backward of a weighted loss, held against the product that it replaces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import graph

import oomph
from oomph.recovery._backward import can_begin, differentiate

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean squared error": nn.functional.mse_loss,
    "a leaf's own element": lambda outputs, _: outputs.reshape(-1)[0],
    "of one dimension": lambda outputs, targets: (outputs * targets).mean().reshape(1),
}


def gradients(loss: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype, *, product: bool) -> list[Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(dtype)
    for weight, rows in ((1.0, 4), (3 / 7, 3), (1 / 3, 1)):
        inputs, targets = torch.randn(rows, 5, dtype=dtype), torch.randn(rows, 3, dtype=dtype)
        value = loss(net(inputs), targets)
        if product:
            (value * weight).backward()
        else:
            differentiate(value, weight)
    return [one.grad for one in net.parameters() if one.grad is not None]


def test_this_torch_can_begin_with_a_weight() -> None:
    assert can_begin()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_the_product(name: str, dtype: torch.dtype) -> None:
    ours, theirs = (gradients(LOSSES[name], dtype, product=product) for product in (False, True))
    assert len(ours) == len(theirs) == 4
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_a_parameter_that_is_the_loss_is_not_tied_to_the_weight() -> None:
    """Its gradient may be the very tensor that backward began with."""
    parameter = nn.Parameter(torch.ones(1))
    for _ in range(3):
        differentiate(parameter.squeeze(), 0.25)
    assert parameter.grad is not None
    assert parameter.grad.tolist() == [0.75]


def test_another_torch_gets_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_engine_run_backward", lambda *_: None)
    can_begin.cache_clear()
    try:
        assert not can_begin()
        monkeypatch.undo()
        ours, theirs = (gradients(nn.functional.mse_loss, torch.float32, product=product) for product in (False, True))
        assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    finally:
        can_begin.cache_clear()


def test_what_has_no_gradient_is_refused_as_torch_does() -> None:
    for value in (torch.ones(()), torch.ones((), dtype=torch.complex64, requires_grad=True)):
        for weight in (1.0, 0.5):
            with pytest.raises(RuntimeError, match="grad"):
                differentiate(value, weight)


def test_the_number_alone_is_kept_of_a_loss() -> None:
    """Mean squared error is a number in memory for all the outputs, which must not outlive its piece."""
    net = nn.Linear(4, 4096)
    batch = torch.randn(6, 4), torch.randn(6, 4096)
    for pieces in (1, 3):
        guard = oomph.guard(
            model=net, optimizer=torch.optim.SGD(net.parameters()), loss=nn.functional.mse_loss, pieces=pieces
        )
        assert guard.step(batch).loss.untyped_storage().nbytes() == 4
    assert nn.functional.mse_loss(net(batch[0]), batch[1]).untyped_storage().nbytes() > 4  # or there is nothing to see


def test_several_pieces_import_nothing_for_their_backward() -> None:
    """torch's public way would import a computer algebra, in the middle of the first step."""
    code = (
        "import sys, torch, oomph\n"
        "net = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "guard = oomph.guard(model=net, optimizer=optimizer, loss=torch.nn.functional.mse_loss, pieces=2)\n"
        "before = set(sys.modules)\n"
        "guard.step((torch.randn(4, 2), torch.randn(4, 2)))\n"
        "print(sorted(name for name in set(sys.modules) - before if name in {'sympy', 'torch.fx'}))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
