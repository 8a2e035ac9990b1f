from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from oomph.errors import UsageError
from oomph.patches import apply_settings
from oomph.settings import Settings


class Block(nn.Module):
    """A convolution with BatchNorm and dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(torch.relu(self.norm(self.conv(x))))


def trained_model(*, double: bool = True) -> tuple[nn.Sequential, Optimizer]:
    """Return a model and an optimizer that have made a step, with gradients of another one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), Block(8), Block(8), nn.Flatten(), nn.Linear(8 * 36, 4))
    model = model.double() if double else model
    optimizer = AdamW(model.parameters(), 1e-2)
    loss_of(model).backward()
    optimizer.step()
    optimizer.zero_grad()
    loss_of(model).backward()
    return model, optimizer


def first_weight(model: nn.Module) -> Tensor:
    return next(model.parameters())


def loss_of(model: nn.Module, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    images = torch.randn(4, 3, 8, 8, dtype=next(model.parameters()).dtype)
    return nn.functional.cross_entropy(model(images), torch.arange(4))


def state_of(model: nn.Module, optimizer: Optimizer) -> list[Any]:
    """Return everything with its layout: parameters, buffers, gradients, optimizer state, groups, forwards."""
    tensors = [*model.parameters(), *model.buffers(), *(param.grad for param in model.parameters())]
    tensors += [value for state in optimizer.state.values() for value in state.values()]
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    forwards = ["forward" in vars(module) for module in model.modules()]
    return [[(tensor.clone(), tensor.stride()) for tensor in tensors if tensor is not None], groups, forwards]


def assert_same(first: list[Any], second: list[Any]) -> None:
    assert first[1:] == second[1:]
    for (tensor, stride), (other, other_stride) in zip(first[0], second[0], strict=True):
        assert torch.equal(tensor, other)
        assert stride == other_stride


EXACT = Settings(batch=4, checkpointing=("1", "2"), optimizer="fused")
ALL = Settings(batch=4, checkpointing=("1",), optimizer="fused", memory_format="channels_last", precision="amp-bf16")


def test_checkpointing_and_fused_updates_change_no_result() -> None:
    model, optimizer = trained_model()
    reference, reference_optimizer = copy.deepcopy((model, optimizer))
    reference_optimizer.param_groups[0]["params"] = list(reference.parameters())
    optimizer.zero_grad()  # a copy has no gradients
    apply_settings(model, [optimizer], EXACT)
    reference_loss, loss = loss_of(reference), loss_of(model)
    assert torch.equal(loss, reference_loss)
    for current in (reference_loss, loss):
        current.backward()
    for param, other in zip(model.parameters(), reference.parameters(), strict=True):
        assert param.grad is not None
        torch.testing.assert_close(param.grad, other.grad, rtol=1e-12, atol=1e-14)
    for buffer, reference_buffer in zip(model.buffers(), reference.buffers(), strict=True):
        assert torch.equal(buffer, reference_buffer)
    optimizer.step()
    assert all(param.isfinite().all() for param in model.parameters())


@pytest.mark.parametrize("settings", [EXACT, ALL, Settings(batch=4)])
def test_undo_restores_everything(settings: Settings) -> None:
    model, optimizer = trained_model()
    parameters = list(model.parameters())
    before = state_of(model, optimizer)
    patch = apply_settings(model, [optimizer], settings)
    patch.undo()
    assert_same(before, state_of(model, optimizer))
    assert all(first is second for first, second in zip(parameters, model.parameters(), strict=True))
    assert torch.equal(loss_of(model), loss_of(model))


def test_undo_keeps_what_was_learned() -> None:
    model, optimizer = trained_model(double=False)
    patch = apply_settings(model, [optimizer], ALL)
    loss_of(model).backward()
    optimizer.step()
    learned = [param.clone() for param in model.parameters()]
    patch.undo()
    assert all(torch.equal(param, other) for param, other in zip(model.parameters(), learned, strict=True))
    assert first_weight(model).is_contiguous()


def test_mixed_precision_and_channels_last_are_within_their_rounding() -> None:
    model, optimizer = trained_model(double=False)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # its masks depend on the layout
    reference = loss_of(model)
    apply_settings(model, [optimizer], ALL)
    loss = loss_of(model)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(reference.item(), rel=0.03)
    weight = first_weight(model)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert optimizer.state[weight]["exp_avg"].is_contiguous(memory_format=torch.channels_last)
    loss.backward()
    optimizer.step()


def test_a_setting_that_is_impossible_changes_nothing() -> None:
    model, _ = trained_model()
    optimizer = torch.optim.Rprop(model.parameters())
    before = state_of(model, optimizer)
    with pytest.raises(UsageError, match="Rprop has no fused implementation"):
        apply_settings(model, [optimizer], ALL)
    with pytest.raises(UsageError, match="the model has no block '7'"):
        apply_settings(model, [SGD(model.parameters(), 0.1)], Settings(batch=4, checkpointing=("1", "7")))
    assert_same(before, state_of(model, optimizer))


def test_autocast_of_the_training_loop_stays() -> None:
    model = nn.Linear(4, 4)
    with apply_settings(model, [], Settings(batch=1, precision="amp-bf16")):
        assert model(torch.ones(1, 4)).dtype is torch.float32
        with torch.autocast("cpu", torch.bfloat16):
            assert model(torch.ones(1, 4)).dtype is torch.bfloat16
