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


def test_blocks_are_repeated_parts_not_single_layers() -> None:
    assert blocks(net()) == ("1.0", "1.1")


def test_checkpointing_keeps_gradients_and_batchnorm_statistics() -> None:
    plain, checkpointed = net(), net()
    checkpoint(checkpointed, blocks(checkpointed))
    (loss, grads), (checkpointed_loss, checkpointed_grads) = step(plain), step(checkpointed)
    assert torch.equal(loss, checkpointed_loss)
    assert all(torch.equal(grads[name], checkpointed_grads[name]) for name in grads)
    for (name, buffer), (_, other) in zip(plain.named_buffers(), checkpointed.named_buffers(), strict=True):
        assert torch.equal(buffer, other), name  # torch's own checkpoint counts the batch twice


def test_checkpointed_block_runs_twice_until_undone() -> None:
    model = net()
    runs = []
    model.get_submodule("1.0.inner.0").register_forward_hook(lambda *_: runs.append(1))
    patch = checkpoint(model, ["1.0"])
    step(model)
    assert len(runs) == 2
    patch.undo()
    step(model)
    assert len(runs) == 3
    patch.undo()  # does nothing


def test_block_runs_once_without_a_backward_pass() -> None:
    model = net().eval()
    runs = []
    model.get_submodule("1.0").register_forward_hook(lambda *_: runs.append(1))
    checkpoint(model, blocks(model))
    with torch.no_grad():
        model(torch.randn(1, 3, 6, 6))
    assert len(runs) == 1


def test_undo_leaves_no_trace_in_the_model() -> None:
    model = net()
    checkpoint(model, blocks(model)).undo()
    assert all("forward" not in module.__dict__ for module in copy.deepcopy(model).modules())


@pytest.mark.parametrize("name", ["nowhere", "1.7"])
def test_unknown_block_is_rejected_by_name(name: str) -> None:
    with pytest.raises(oomph.UsageError, match=name):
        checkpoint(net(), [name])


def test_block_is_not_checkpointed_twice() -> None:
    model = net()
    checkpoint(model, ["1.0"])
    with pytest.raises(oomph.UsageError, match="already"):
        checkpoint(model, ["1.0"])
