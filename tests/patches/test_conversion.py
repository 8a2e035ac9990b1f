from __future__ import annotations

import torch
from torch import nn

from oomph.patches import convert_batch, convert_model
from oomph.settings import Settings


def test_tied_and_frozen_weights_survive() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    convert_model(model, Settings(batch=1, precision="bf16"))
    assert model[0].weight is model[1].weight
    assert model[0].weight.dtype == torch.bfloat16
    assert not model[0].bias.requires_grad


def test_float_buffers_are_converted_and_counters_are_not() -> None:
    model = nn.BatchNorm2d(3)
    convert_model(model, Settings(batch=1, precision="bf16"))
    assert model.running_mean is not None
    assert model.running_mean.dtype == torch.bfloat16
    assert model.num_batches_tracked is not None
    assert model.num_batches_tracked.dtype == torch.int64


def test_channels_last_keeps_the_values() -> None:
    settings = Settings(batch=1, memory_format="channels_last")
    model = nn.Conv2d(3, 8, 3)
    before = model.weight.detach().clone()
    convert_model(model, settings)
    x, y = convert_batch((torch.randn(2, 3, 8, 8), torch.ones(2)), settings)
    assert model.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(model.weight, before)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert y.shape == (2,)


def test_default_settings_change_nothing() -> None:
    model = nn.Linear(2, 2)
    weight = model.weight
    convert_model(model, Settings(batch=1))
    assert model.weight is weight
