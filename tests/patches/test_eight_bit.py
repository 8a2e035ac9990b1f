from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
import torch
from torch import nn

from oomph.errors import UsageError
from oomph.patches import set_variant

needs_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is optional")


def optimizer_of(model: nn.Module, kind: Any = torch.optim.AdamW, **options: Any) -> torch.optim.Optimizer:
    weights, biases = [model.get_parameter("weight")], [model.get_parameter("bias")]
    return kind([{"params": weights, "weight_decay": 0.1}, {"params": biases}], lr=0.01, **options)


def test_a_missing_package_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(
        UsageError, match=r"need torchao, which isn't installed; run `pip install 'oomph\[eight-bit\]'`"
    ):
        set_variant(torch.optim.AdamW(nn.Linear(2, 2).parameters()), "8bit")


def test_other_optimizers_and_those_in_use_are_refused() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(UsageError, match="SGD has no 8-bit states; use Adam or AdamW"):
        set_variant(torch.optim.SGD(model.parameters(), 0.1), "8bit")
    with pytest.raises(UsageError, match="AdamW with maximize"):
        set_variant(torch.optim.AdamW(model.parameters(), maximize=True), "8bit")
    used = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    used.step()
    with pytest.raises(UsageError, match="AdamW has taken steps, and its states are not converted to 8 bits"):
        set_variant(used, "8bit")
    scheduled = torch.optim.AdamW(model.parameters())
    torch.optim.lr_scheduler.StepLR(scheduled, 1)
    with pytest.raises(UsageError, match="convert it before the schedulers are created"):
        set_variant(scheduled, "8bit")


@needs_torchao
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam])
def test_groups_stay_and_updates_are_nearly_the_same(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    torch.manual_seed(0)
    x, model, other = torch.randn(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)
    other.load_state_dict(model.state_dict())
    optimizer, expected = optimizer_of(model, kind), optimizer_of(other, kind)
    set_variant(optimizer, "8bit")
    assert optimizer.param_groups[0]["weight_decay"] == 0.1
    for _ in range(5):
        for module, module_optimizer in ((model, optimizer), (other, expected)):
            module_optimizer.zero_grad()
            module(x).square().mean().backward()
            module_optimizer.step()
    state = optimizer.state[model.get_parameter("weight")]
    assert state["exp_avg"].codes.dtype is torch.uint8
    torch.testing.assert_close(model.weight, other.weight, rtol=0, atol=5e-3)  # five steps of up to 0.01


@needs_torchao
def test_undo_gives_the_class_and_the_numbers_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    model = nn.Linear(64, 64)
    optimizer = optimizer_of(model)
    patch = set_variant(optimizer, "8bit")
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    model(torch.randn(2, 64)).sum().backward()
    optimizer.step()
    scheduler.step()
    del optimizer.__dict__["step"]
    patch.undo()
    assert type(optimizer) is torch.optim.AdamW
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.005)
    assert type(optimizer.state[model.get_parameter("weight")]["exp_avg"]) is torch.Tensor
    optimizer.step()
