from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.detect import DetectionLoss, yolov5
from oomph.detect.model import downscale_batch


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
        split="yolo",
        allow=("size",),
        resize=downscale_batch,
    )
    report = guarded.step((images, targets))
    assert [fallback.name for fallback in report.fallbacks][-1] == "size"
    smaller = downscale_batch((images, targets))
    expected = DetectionLoss(twin, imgsz=96)(twin(smaller[0]), targets).detach()
    assert float(report.loss) == pytest.approx(float(expected), rel=1e-4)
