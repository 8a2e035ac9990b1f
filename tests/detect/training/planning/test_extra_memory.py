from __future__ import annotations

from pathlib import Path

import pytest
import torch

from oomph.detect import Hyperparameters, TrainConfig, yolov5
from oomph.detect.training.planning._extra_memory import ExtraMemory, extra_memory
from oomph.prediction import Prediction, update_bytes

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def config(optimizer: str = "SGD", freeze: int = 0) -> TrainConfig:
    hyp = Hyperparameters(optimizer=optimizer)
    return TrainConfig(data=Path("data.yaml"), run_dir=Path("run"), cfg="n", hyp=hyp, freeze=freeze)


@pytest.mark.medium
def test_the_ema_is_always_as_large_as_the_weights() -> None:
    size = sum(tensor.numel() * tensor.element_size() for tensor in yolov5("n", 4).state_dict().values())
    for device in (GPU, CPU):
        assert extra_memory(config(), 4, "given", device).ema == pytest.approx(size, rel=0.001)


@pytest.mark.medium
@pytest.mark.parametrize(
    ("device", "optimizer", "implementation", "times"),
    [
        (GPU, "SGD", "fused", 1),
        (GPU, "AdamW", "fused", 1),  # the weights, before the first update
        (GPU, "SGD", "given", 3),  # weights, momentum, and gradients, which Nesterov momentum writes to
        (GPU, "AdamW", "given", 3),  # weights and two moments
        (CPU, "SGD", "given", 4),
        (CPU, "AdamW", "given", 4),
    ],
)
def test_the_backup_depends_on_device_and_optimizer(
    device: torch.device, optimizer: str, implementation: str, times: int
) -> None:
    weights = sum(parameter.numel() * parameter.element_size() for parameter in yolov5("n", 4).parameters())
    backup = extra_memory(config(optimizer), 4, implementation, device).backup
    assert backup == pytest.approx(times * weights, rel=0.02)  # on the CPU with the buffers of the EMA


@pytest.mark.medium
def test_frozen_layers_are_averaged_but_not_backed_up() -> None:
    trained = extra_memory(config("AdamW"), 4, "given", GPU)
    frozen = extra_memory(config("AdamW", freeze=10), 4, "given", GPU)
    assert frozen.ema == trained.ema
    assert frozen.backup < 0.6 * trained.backup


@pytest.mark.medium
def test_on_a_gpu_a_backup_counts_only_above_the_peak(prediction: Prediction) -> None:
    free = int(prediction.allocated.value) - update_bytes(prediction)
    assert free > 0
    allocated = prediction.allocated.value
    assert ExtraMemory(100, free - 1).added_to(prediction).allocated.value == allocated + 100
    assert ExtraMemory(100, free + 50).added_to(prediction).allocated.value == allocated + 150
    assert ExtraMemory(100, 0).added_to(prediction).device.high == prediction.device.high + 100


@pytest.mark.medium
def test_in_a_heap_a_backup_always_adds_up(prediction: Prediction) -> None:
    assert extra_memory(config(), 4, "given", CPU).backup_adds_up
    assert not extra_memory(config(), 4, "given", GPU).backup_adds_up
    extra = ExtraMemory(100, 50, backup_adds_up=True)
    assert extra.added_to(prediction).allocated.value == prediction.allocated.value + 150
