from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrizations

from oomph.patches import attribute_tables, has_attribute_state, is_copied, is_internal, rebind


class Layer(nn.Linear):
    """A class of the user."""


def test_only_classes_of_the_user_have_state_in_attributes() -> None:
    layers = [nn.Linear(1, 1), nn.Sequential(), parametrizations.weight_norm(nn.Linear(1, 1)), nn.LSTM(1, 1)]
    assert not any(map(has_attribute_state, layers))
    assert has_attribute_state(Layer(1, 1))
    assert has_attribute_state(parametrizations.weight_norm(Layer(1, 1)))
    layer = Layer(1, 1)
    assert attribute_tables([layer, *layers, layer]) == [vars(layer)]


def test_rebinding_leaves_hooks_parameters_and_modules() -> None:
    layer = Layer(1, 1)
    assert {name for name in vars(layer) if not is_internal(name)} == {"training", "in_features", "out_features"}
    before = dict(vars(layer))
    layer.register_forward_hook(lambda *_: None)
    vars(layer)["_forward_hooks"] = hooks = dict(layer._forward_hooks)
    layer.in_features, vars(layer)["late"] = 7, 1
    del layer.out_features
    rebind(vars(layer), before)
    assert (layer.in_features, layer.out_features) == (1, 1)
    assert not hasattr(layer, "late")
    assert layer._forward_hooks is hooks


def test_weights_and_parts_of_a_graph_are_not_copied() -> None:
    weight = nn.Parameter(torch.ones(1))
    assert not is_copied(weight)
    assert not is_copied(weight * 2)
    assert is_copied((weight * 2).detach())
    with torch.inference_mode():
        assert not is_copied(torch.ones(1))
