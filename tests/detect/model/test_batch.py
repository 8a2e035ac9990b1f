from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.detect import DetectionLoss, split_detection_batch, yolov5
from oomph.detect.model import downscale_batch
from oomph.errors import UsageError


def test_split_renumbers_the_targets_of_each_micro_batch() -> None:
    images = torch.arange(4.0).view(4, 1, 1, 1)
    targets = torch.tensor([[3.0, 7, 0, 0, 0, 0], [0, 8, 0, 0, 0, 0], [1, 9, 0, 0, 0, 0]])
    first, second = split_detection_batch((images, targets), 2)
    assert first[1][:, :2].tolist() == [[0, 8], [1, 9]]
    assert second[1][:, :2].tolist() == [[1, 7]]
    assert second[0].flatten().tolist() == [2, 3]
    assert [len(part[0]) for part in split_detection_batch((images, targets), 3)] == [2, 1, 1]
    assert targets[0, 0] == 3  # the batch itself is unchanged


@pytest.mark.parametrize("micro_batches", [0, 5])
def test_split_rejects_an_impossible_number_of_micro_batches(micro_batches: int) -> None:
    with pytest.raises(UsageError, match=f"4 images can't be split into {micro_batches} micro-batches"):
        split_detection_batch((torch.zeros(4, 1, 1, 1), torch.zeros(0, 6)), micro_batches)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_downscaling_keeps_the_content(dtype: torch.dtype) -> None:
    white = 255 if dtype is torch.uint8 else 1.0
    images = torch.zeros(2, 3, 160, 320, dtype=dtype)
    images[:, :, :, 160:] = white  # the right half
    targets = torch.rand(4, 6)
    smaller, same_targets = downscale_batch((images, targets))
    assert smaller.shape == (2, 3, 128, 256)
    assert smaller.dtype == dtype
    assert same_targets is targets
    assert smaller[..., :124].max() == 0
    assert float(smaller[..., 132:].min()) == pytest.approx(white)


def test_downscaled_sides_are_at_least_the_largest_stride() -> None:
    smaller, _ = downscale_batch((torch.zeros(1, 3, 32, 64), torch.zeros(0, 6)))
    assert smaller.shape[-2:] == (32, 32)


@pytest.mark.medium
def test_guard_trains_on_downscaled_images_if_allowed() -> None:
    torch.manual_seed(0)
    model = yolov5("n", classes=2)
    twin = copy.deepcopy(model)
    images, targets = torch.rand(2, 3, 96, 96), torch.tensor([[0, 1, 0.5, 0.5, 0.3, 0.4], [1, 0, 0.3, 0.6, 0.5, 0.2]])

    def raise_oom(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        if arguments[0].shape[-1] > 64:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    model.register_forward_pre_hook(raise_oom)
    guarded = oomph.guard(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        loss=DetectionLoss(model, imgsz=96),
        split=split_detection_batch,
        allow=("size",),
        resize=downscale_batch,
    )
    report = guarded.step((images, targets))
    assert [fallback.name for fallback in report.fallbacks][-1] == "size"
    smaller = downscale_batch((images, targets))
    expected = DetectionLoss(twin, imgsz=96)(twin(smaller[0]), targets).detach()
    assert float(report.loss) == pytest.approx(float(expected), rel=1e-4)
