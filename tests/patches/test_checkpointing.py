from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.patches import blocks, checkpoint


def net() -> nn.Module:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            return x + self.inner(x)

    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.Sequential(Residual(), Residual()), nn.Flatten(), nn.Dropout(0.5))


def step(model: nn.Module) -> tuple[Tensor, dict[str, Tensor]]:
    torch.manual_seed(1)
    loss = model(torch.randn(2, 3, 6, 6)).square().mean()
    loss.backward()
    return loss, {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def test_the_blocks_are_the_repeated_parts_and_not_single_layers() -> None:
    assert blocks(net()) == ("1.0", "1.1")


def test_gradients_and_batchnorm_statistics_are_as_without() -> None:
    plain, twice = net(), net()
    checkpoint(twice, blocks(twice))
    (loss, grads), (again, others) = step(plain), step(twice)
    assert torch.equal(loss, again)
    assert all(torch.equal(grads[name], others[name]) for name in grads)
    for (name, one), (_, other) in zip(plain.named_buffers(), twice.named_buffers(), strict=True):
        assert torch.equal(one, other), name  # torch's own checkpoint counts the batch twice


def test_the_block_runs_twice_and_keeps_less() -> None:
    model = net()
    runs = []
    model.get_submodule("1.0.inner.0").register_forward_hook(lambda *_: runs.append(1))
    change = checkpoint(model, ["1.0"])
    step(model)
    assert len(runs) == 2
    change.undo()
    step(model)
    assert len(runs) == 3
    change.undo()  # nothing left to do


def test_nothing_is_run_twice_without_a_backward_pass() -> None:
    model = net().eval()
    runs = []
    model.get_submodule("1.0").register_forward_hook(lambda *_: runs.append(1))
    checkpoint(model, blocks(model))
    with torch.no_grad():
        model(torch.randn(1, 3, 6, 6))
    assert len(runs) == 1


def test_undone_a_model_can_be_copied_and_saved_as_before() -> None:
    model = net()
    checkpoint(model, blocks(model)).undo()
    assert all("forward" not in module.__dict__ for module in copy.deepcopy(model).modules())


@pytest.mark.parametrize("name", ["nowhere", "1.7"])
def test_a_block_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(oomph.UsageError, match=name):
        checkpoint(net(), [name])


def test_a_block_is_not_wrapped_a_second_time() -> None:
    model = net()
    checkpoint(model, ["1.0"])
    with pytest.raises(oomph.UsageError, match="already"):
        checkpoint(model, ["1.0"])
