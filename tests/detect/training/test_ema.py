from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from oomph.detect import Ema


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))


def test_the_average_follows_the_formula() -> None:
    model = network()
    ema = Ema(model)
    expected = model.state_dict()["0.weight"].clone()
    for update in range(1, 4):
        with torch.no_grad():
            model.state_dict()["0.weight"].add_(1.0)
        ema.update(model)
        decay = 0.9999 * (1 - math.exp(-update / 2000))
        expected = decay * expected + (1 - decay) * model.state_dict()["0.weight"]
        assert torch.allclose(ema.module.state_dict()["0.weight"], expected, atol=1e-6)
    assert ema.updates == 3


def test_statistics_are_averaged_and_counters_copied() -> None:
    model = network()
    ema = Ema(model)
    model.train()(torch.rand(2, 3, 4, 4) + 5)
    ema.update(model)
    assert int(ema.module.state_dict()["1.num_batches_tracked"]) == 1
    assert torch.allclose(ema.module.state_dict()["1.running_mean"], model.state_dict()["1.running_mean"], atol=1e-3)
    assert not ema.module.training
    assert not any(parameter.requires_grad for parameter in ema.module.parameters())


class RecordOperations(TorchDispatchMode):
    """Records the operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_an_update_is_in_place_and_allocates_nothing() -> None:
    model = network()
    ema = Ema(model)
    ema.update(model)
    with RecordOperations() as record:
        ema.update(model)
    assert record.names == ["aten._foreach_lerp_.Scalar", "aten._foreach_copy_.default"]
    assert ema.updates_in_place


def test_replaced_tensors_of_the_network_are_noticed() -> None:
    model = network()
    ema = Ema(model)
    ema.update(model)
    model[0].weight = nn.Parameter(torch.full((4, 3, 1, 1), 7.0))
    model[1].register_buffer("running_mean", torch.full((4,), 9.0))
    for _ in range(2):
        ema.update(model)
    state = ema.module.state_dict()
    assert torch.allclose(state["0.weight"], torch.tensor(7.0), atol=1e-3)
    assert torch.allclose(state["1.running_mean"], torch.tensor(9.0), atol=1e-3)


def test_a_network_without_counters_is_averaged() -> None:
    model = nn.Linear(2, 2)
    ema = Ema(model)
    with torch.no_grad():
        model.weight.fill_(3.0)
    ema.update(model)
    assert torch.allclose(ema.module.state_dict()["weight"], torch.tensor(3.0), atol=1e-2)


def test_the_state_can_be_restored() -> None:
    model = network()
    first, second = Ema(model), Ema(network())
    with torch.no_grad():
        model.state_dict()["0.weight"].mul_(3.0)
    first.update(model)
    second.load_state_dict(first.state_dict())
    first.update(model)
    second.update(model)
    assert second.updates == 2
    state, expected = first.module.state_dict(), second.module.state_dict()
    assert all(torch.equal(state[name], expected[name]) for name in state)


def test_a_replaced_module_is_noticed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    ema = Ema(model, decay=0.5, ramp=1e-9)
    ema.update(model)
    model[1] = nn.Linear(2, 2)
    average = ema.module.get_parameter("1.weight")
    before = average.clone()
    ema.update(model)
    assert torch.allclose(average, (before + model.get_parameter("1.weight")) / 2)
