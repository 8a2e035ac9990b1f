from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oomph.job import Job
from oomph.settings import Settings
from oomph.trace import CudaDevice, Phase, trace_step
from oomph.trace.kernels._ampere_convolutions import forward_workspace
from oomph.trace.kernels._convolution_workspaces import ConvolutionShape

WIDE = ConvolutionShape(
    batch=8,
    in_channels=64,
    out_channels=128,
    in_pixels=400,
    out_pixels=400,
    taps=9,
    pointwise=False,
    groups=1,
    element_size=4,
    channels_last=False,
)


def test_forward_converts_input_output_and_weight() -> None:
    assert forward_workspace(WIDE) == WIDE.input_bytes() + WIDE.output_bytes() + WIDE.weight_bytes


def test_pointwise_convolutions_and_images_are_not_converted() -> None:
    assert forward_workspace(replace(WIDE, taps=1, pointwise=True)) == 0
    assert forward_workspace(replace(WIDE, in_channels=3)) == 0


def test_depthwise_channels_are_padded_in_channels_last_only() -> None:
    depthwise = replace(WIDE, out_channels=64, groups=64)
    assert forward_workspace(depthwise) == 0
    padded = forward_workspace(replace(depthwise, channels_last=True))
    assert 8 * depthwise.input_bytes() < padded < 8.1 * depthwise.input_bytes()


def images(count: int, size: Any) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 64, size, size).requires_grad_(), torch.zeros(count).long()


def workspaces(device: CudaDevice, precision: str) -> dict[Phase, int]:
    job = Job(
        model=lambda: nn.Sequential(nn.Conv2d(64, 128, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        batch=images,
        loss=F.cross_entropy,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
    )
    trace = trace_step(job, Settings(batch=8, size=20, precision=precision), device)
    return {
        phase: sum(
            storage.size
            for storage in trace.storages
            if storage.optional and storage.phase is phase and not storage.step
        )
        for phase in (Phase.FORWARD, Phase.BACKWARD)
    }


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9)])
def test_gradients_in_fp32_have_no_workspace(capability: tuple[int, int]) -> None:
    ampere, hopper = (workspaces(CudaDevice(capability=each), "fp32") for each in (capability, (9, 0)))
    assert ampere[Phase.BACKWARD] == 0 < hopper[Phase.BACKWARD]
    assert ampere[Phase.FORWARD] == forward_workspace(WIDE) > hopper[Phase.FORWARD]


def test_half_precision_follows_hopper() -> None:
    ampere, hopper = (workspaces(CudaDevice(capability=each), "amp-fp16") for each in ((8, 6), (9, 0)))
    assert ampere == hopper
