from __future__ import annotations

import torch
from torch.nn import functional as F

from oomph.detect.model._mobile_blocks import (
    Bneck,
    InvertedResidual,
    SeparableConv,
    ShuffleDown,
    ShuffleUnit,
    SqueezeExcitation,
    shuffle_channels,
)


def test_shuffling_interleaves_the_halves_and_keeps_the_memory_format() -> None:
    x = torch.arange(2 * 6 * 3 * 5, dtype=torch.float32).view(2, 6, 3, 5)
    expected = x[:, [0, 3, 1, 4, 2, 5]]
    assert torch.equal(shuffle_channels(x), expected)
    assert shuffle_channels(x).is_contiguous()
    last = shuffle_channels(x.to(memory_format=torch.channels_last))
    assert torch.equal(last, expected)
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_half_of_the_channels_passes_a_shuffle_unit() -> None:
    x = torch.rand(2, 8, 4, 4)
    assert torch.equal(ShuffleUnit(8)(x)[:, ::2], x[:, :4])


def test_shuffle_down_halves_height_and_width() -> None:
    assert ShuffleDown(24, 116)(torch.rand(2, 24, 8, 12)).shape == (2, 116, 4, 6)


def test_squeeze_excitation_scales_channels_by_at_most_one() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 240, 4, 4) + 0.1
    block = SqueezeExcitation(240)
    scales = block(x) / x
    assert block.reduce.out_channels == 64  # a quarter, 60, rounded to a multiple of 8
    assert torch.allclose(scales, scales[..., :1, :1].expand_as(scales))
    assert 0 <= float(scales.min().detach()) < float(scales.max().detach()) <= 1


def test_an_inverted_residual_adds_its_input_where_the_shapes_are_equal() -> None:
    x = torch.rand(2, 16, 8, 8)
    same = InvertedResidual(16, 16, Bneck(3, 1, 64, squeeze=True, activation=F.hardswish)).eval()
    torch.nn.init.zeros_(same.project.conv.weight)
    assert torch.equal(same(x), x)
    down = InvertedResidual(16, 24, Bneck(5, 2, 16, squeeze=False, activation=F.relu))
    assert down(x).shape == (2, 24, 4, 4)
    assert not list(down.expand.parameters())  # nothing to expand: 16 channels inside, too


def test_a_separable_convolution_has_the_shape_of_a_dense_one() -> None:
    block = SeparableConv(16, 32, 3, 2)
    assert block(torch.rand(1, 16, 8, 8)).shape == (1, 32, 4, 4)
    assert block.depthwise.conv.weight.shape == (16, 1, 3, 3)
