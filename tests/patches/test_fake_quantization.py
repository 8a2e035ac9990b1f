from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from oomph.patches import apply_fake_quantization, is_fake_quantized, undo_fake_quantization
from oomph.patches._fake_quantization import WEIGHT_LEVELS, round_activations, round_weights


def block() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 5))


def test_activations_are_rounded_as_torch_does_it() -> None:
    values = torch.rand(10_000, generator=torch.Generator().manual_seed(0)) - 0.3
    low, high = min(float(values.min()), 0), max(float(values.max()), 0)
    scale = (high - low) / 255
    expected = torch.fake_quantize_per_tensor_affine(values, scale, round(-low / scale), 0, 255)
    rounded = round_activations(values)
    # Only the ends of the range may differ, by a step: torch rounds the zero point.
    assert float((rounded - expected).abs().max()) < 1.01 * scale
    assert float((rounded == expected).float().mean()) > 0.99
    assert len(rounded.unique()) in {256, 257}


def test_zero_stays_zero_and_constants_are_finite() -> None:
    assert not round_activations(torch.zeros(4)).any()
    assert not round_weights(torch.zeros(2, 3)).any()
    positive = torch.tensor([0.0, 5.0, 9.0])
    assert round_activations(positive)[0] == 0
    assert torch.allclose(round_activations(positive), positive, atol=9 / 255)


def test_every_channel_of_a_weight_has_its_own_scale() -> None:
    weight = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 10, 0.1, 5]).view(
        -1, 1, 1, 1
    )
    rounded = round_weights(weight)
    for channel, original in zip(rounded, weight, strict=True):
        step = original.abs().max() / WEIGHT_LEVELS
        assert torch.allclose(channel / step, (channel / step).round(), atol=1e-4)
        assert float((channel - original).abs().max()) <= 0.501 * step
        assert channel.abs().max() == pytest.approx(float(original.abs().max()))


def test_batch_norm_needs_no_folding() -> None:
    weight = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    factor = torch.tensor([0.5, -2.0, 7.0, 0.01]).view(-1, 1, 1, 1)  # what folding multiplies channels by
    torch.testing.assert_close(round_weights(weight * factor), round_weights(weight) * factor)


def test_the_gradient_passes_through() -> None:
    values = torch.randn(10, requires_grad=True)
    (round_activations(values) * torch.arange(10)).sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad, torch.arange(10).float())


def test_only_the_computation_changes() -> None:
    model = block()
    before, images = copy.deepcopy(model), torch.randn(4, 3, 8, 8)
    apply_fake_quantization(model)
    assert [is_fake_quantized(layer) for layer in model] == [True, True, False, False, True]
    assert isinstance(model[1], nn.modules.batchnorm._BatchNorm)  # the guard finds it
    assert list(model.state_dict()) == list(before.state_dict())
    expected, outputs = before.eval()(images).detach(), model.eval()(images).detach()
    assert 0 < float((outputs - expected).abs().max()) < 0.1 * float(expected.abs().max())
    twin = copy.deepcopy(model)
    assert torch.equal(twin(images), outputs)
    undo_fake_quantization(twin)
    assert torch.equal(twin(images), expected)
    assert is_fake_quantized(model[0])


def test_skipped_layers_and_subclasses_stay_in_float() -> None:
    class Special(nn.Linear):
        pass

    model = nn.ModuleDict({"first": nn.Linear(2, 2), "head": nn.Linear(2, 2), "special": Special(2, 2)})
    apply_fake_quantization(model, ["head"])
    assert [is_fake_quantized(layer) for layer in model.values()] == [True, False, False]


def test_it_trains_in_bf16() -> None:
    model = block()
    apply_fake_quantization(model)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(torch.randn(4, 3, 8, 8)).float().square().mean()
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
