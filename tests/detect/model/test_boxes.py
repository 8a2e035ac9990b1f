from __future__ import annotations

import pytest
import torch

from oomph.detect import box_iou, cxcywh_to_xyxy, xyxy_to_cxcywh
from oomph.detect.model._boxes import complete_iou


def test_conversions_are_inverse() -> None:
    boxes = torch.rand(50, 4, generator=torch.Generator().manual_seed(0)) * 90 + 5
    assert torch.allclose(xyxy_to_cxcywh(cxcywh_to_xyxy(boxes)), boxes, atol=1e-4)
    assert cxcywh_to_xyxy(torch.tensor([[10.0, 20.0, 4.0, 8.0]])).tolist() == [[8.0, 16.0, 12.0, 24.0]]


def test_iou_is_intersection_over_union() -> None:
    first = torch.tensor([[0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 6.0, 6.0]])
    second = torch.tensor([[1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 2.0, 2.0]])
    assert box_iou(first, second).flatten().tolist() == pytest.approx([1 / 7, 1.0, 0.0, 0.0])


def test_ciou_is_one_for_equal_boxes_and_negative_for_distant_ones() -> None:
    box = torch.tensor([[0.5, 0.5, 2.0, 1.0]])
    assert float(complete_iou(box, box)) == pytest.approx(1.0, abs=1e-5)
    assert float(complete_iou(box, box + torch.tensor([[9.0, 0.0, 0.0, 0.0]]))) == pytest.approx(-81 / 122, rel=1e-5)


def test_ciou_of_equal_boxes_is_a_number_however_it_is_rounded() -> None:
    gen = torch.Generator().manual_seed(0)
    boxes = torch.cat((torch.randn(50_000, 2, generator=gen), 0.1 + 9 * torch.rand(50_000, 2, generator=gen)), 1)
    torch.testing.assert_close(complete_iou(boxes, boxes), torch.ones(50_000), rtol=0, atol=1e-4)
