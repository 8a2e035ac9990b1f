from __future__ import annotations

import pytest
import torch

from oomph.detect._batch import shrink_batch


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
