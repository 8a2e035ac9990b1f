from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from oomph.detect import VAL_NMS, NmsConfig, box_iou, nms
from oomph.detect.model import nms_indices


def greedy_nms(boxes: Tensor, label: Tensor, iou_thres: float, max_det: int) -> list[int]:
    """Apply the definition of NMS box by box."""
    overlaps = (box_iou(boxes, boxes) > iou_thres) & (label[:, None] == label[None])
    kept: list[int] = []
    for index in range(len(boxes)):
        if not any(overlaps[index, other] for other in kept):
            kept.append(index)
    return kept[:max_det]


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_det", [5, 300])
def test_blocks_give_the_greedy_result(seed: int, max_det: int) -> None:
    gen = torch.Generator().manual_seed(seed)
    low = torch.rand(700, 2, generator=gen) * 60
    boxes = torch.cat((low, low + 10 + 20 * torch.rand(700, 2, generator=gen)), 1)
    label = torch.randint(3, (700,), generator=gen)
    assert nms_indices(boxes, label, 0.5, max_det).tolist() == greedy_nms(boxes, label, 0.5, max_det)


def predictions(*rows: list[float]) -> Tensor:
    return torch.tensor([list(rows)])


def test_most_confident_of_overlapping_boxes_is_kept_per_class() -> None:
    boxes = nms(
        predictions(
            [50, 50, 20, 20, 0.9, 0.8, 0.1],
            [51, 50, 20, 20, 0.8, 0.8, 0.1],
            [50, 51, 20, 20, 0.9, 0.1, 0.7],
            [90, 90, 10, 10, 0.2, 0.9, 0.1],
        )
    )[0]
    assert boxes[:, 5].tolist() == [0, 1]
    assert boxes[:, 4].tolist() == pytest.approx([0.72, 0.63])
    assert boxes[0, :4].tolist() == [40, 40, 60, 60]


def test_multi_label_keeps_several_classes_of_a_box() -> None:
    rows = predictions([50, 50, 20, 20, 0.9, 0.8, 0.7])
    assert len(nms(rows)[0]) == 1
    assert nms(rows, NmsConfig(multi_label=True))[0][:, 5].tolist() == [0, 1]


def test_low_confidence_gives_no_boxes() -> None:
    boxes = nms(torch.full((2, 10, 7), 0.01))
    assert [tuple(rows.shape) for rows in boxes] == [(0, 6), (0, 6)]


@pytest.mark.medium
def test_validation_image_with_many_candidates_is_fast() -> None:
    gen = torch.Generator().manual_seed(0)
    rows = torch.rand(1, 25_200, 85, generator=gen)
    rows[..., :4] *= 600
    started = time.process_time()
    assert len(nms(rows, VAL_NMS)[0]) == 300
    assert time.process_time() - started < 1.5
    crowd = rows.clone()
    crowd[..., :2] = 300 + crowd[..., :2] / 100
    crowd[..., 2:4] = 100 + crowd[..., 2:4] / 100
    started = time.process_time()
    assert 80 <= len(nms(crowd, VAL_NMS)[0]) < 300
    assert time.process_time() - started < 2


def test_class_filter_and_agnostic_mode() -> None:
    box = [50.0, 50.0, 20.0, 20.0, 0.9]
    rows = torch.tensor([[[*box, 0.9, 0.1], [*box, 0.2, 0.8], [10.0, 10.0, 4.0, 4.0, 0.9, 0.0, 0.9]]])

    def labels(**options: Any) -> list[int]:
        return [int(row[5]) for row in nms(rows, NmsConfig(**options))[0]]

    assert labels() == [0, 1, 1]
    assert labels(classes=(1,)) == [1, 1]
    assert labels(classes=(7,)) == []
    assert labels(agnostic=True) == [0, 1]
    assert labels(agnostic=True, max_det=1) == [0]
