from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oomph.detect.model._boxes import clip, complete_iou, iou_pairs, to_centres, to_corners


def some_boxes(count: int, seed: int = 0) -> Tensor:
    gen = torch.Generator().manual_seed(seed)
    return torch.rand(count, 4, generator=gen) * 90 + 5


def test_both_forms_hold_the_same_box() -> None:
    boxes = some_boxes(50)
    assert torch.allclose(to_centres(to_corners(boxes)), boxes, atol=1e-4)
    assert to_corners(torch.tensor([[10.0, 20.0, 4.0, 8.0]])).tolist() == [[8.0, 16.0, 12.0, 24.0]]


def test_overlap_is_shared_over_united_area() -> None:
    first = torch.tensor([[0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 6.0, 6.0]])
    second = torch.tensor([[1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 2.0, 2.0]])
    assert iou_pairs(first, second).flatten().tolist() == pytest.approx([1 / 7, 1.0, 0.0, 0.0])


def test_ciou_of_equal_boxes_is_one_and_of_distant_ones_negative() -> None:
    box = torch.tensor([[0.5, 0.5, 2.0, 1.0]])
    assert float(complete_iou(box, box)) == pytest.approx(1.0, abs=1e-5)
    assert float(complete_iou(box, box + torch.tensor([[9.0, 0.0, 0.0, 0.0]]))) == pytest.approx(-81 / 122, rel=1e-5)


def test_clipping_keeps_boxes_inside() -> None:
    assert clip(torch.tensor([[-3.0, 4.0, 50.0, 99.0]]), 40, 30).tolist() == [[0.0, 4.0, 30.0, 40.0]]
