from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

import oomph
from oomph.detect import DetectionLoss, split_batch, yolov5
from oomph.detect.model._batch import shrink_batch


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_images_get_smaller_and_stay_what_they_show(dtype: torch.dtype) -> None:
    most = 255 if dtype is torch.uint8 else 1.0
    images = torch.zeros(2, 3, 160, 320, dtype=dtype)
    images[:, :, :, 160:] = most  # the right half is white
    targets = torch.rand(4, 6)
    smaller, same = shrink_batch((images, targets))
    assert smaller.shape == (2, 3, 128, 256)
    assert smaller.dtype == dtype
    assert same is targets
    assert smaller[..., :124].max() == 0
    assert float(smaller[..., 132:].min()) == pytest.approx(most)


def test_no_side_falls_below_the_largest_stride() -> None:
    smaller, _ = shrink_batch((torch.zeros(1, 3, 32, 64), torch.zeros(0, 6)))
    assert smaller.shape[-2:] == (32, 32)


def test_a_guard_that_may_make_images_smaller_trains_on_the_smaller_ones() -> None:
    torch.manual_seed(0)
    model = yolov5("n", classes=2)
    twin = copy.deepcopy(model)
    images, targets = torch.rand(2, 3, 96, 96), torch.tensor([[0, 1, 0.5, 0.5, 0.3, 0.4], [1, 0, 0.3, 0.6, 0.5, 0.2]])

    def run_short(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        if arguments[0].shape[-1] > 64:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    model.register_forward_pre_hook(run_short)
    guarded = oomph.guard(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        loss=DetectionLoss(model, size=96),
        split=split_batch,
        allow=("size",),
        resize=shrink_batch,
    )
    report = guarded.step((images, targets))
    assert [rung.name for rung in report.fallbacks][-1] == "size"
    smaller = shrink_batch((images, targets))
    expected = DetectionLoss(twin, size=96)(twin(smaller[0]), targets).detach()
    assert float(report.loss) == pytest.approx(float(expected), rel=1e-4)
