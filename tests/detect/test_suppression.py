from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor

from oomph.detect.model._boxes import iou_pairs
from oomph.detect.model._nms import VALIDATION, Suppression, keep_by_blocks, suppress


def greedy(boxes: Tensor, label: Tensor, overlap: float, limit: int) -> list[int]:
    """The words of the definition."""
    clash = (iou_pairs(boxes, boxes) > overlap) & (label[:, None] == label[None])
    kept: list[int] = []
    for index in range(len(boxes)):
        if not any(clash[index, other] for other in kept):
            kept.append(index)
    return kept[:limit]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [5, 300])
def test_blocks_keep_what_the_greedy_loop_keeps(seed: int, limit: int) -> None:
    gen = torch.Generator().manual_seed(seed)
    low = torch.rand(700, 2, generator=gen) * 60
    boxes = torch.cat((low, low + 10 + 20 * torch.rand(700, 2, generator=gen)), 1)
    label = torch.randint(3, (700,), generator=gen)
    assert keep_by_blocks(boxes, label, 0.5, limit).tolist() == greedy(boxes, label, 0.5, limit)


def predictions(*rows: list[float]) -> Tensor:
    return torch.tensor([list(rows)])


def test_of_overlapping_boxes_the_surest_stays_and_classes_do_not_disturb_each_other() -> None:
    found = suppress(
        predictions(
            [50, 50, 20, 20, 0.9, 0.8, 0.1],
            [51, 50, 20, 20, 0.8, 0.8, 0.1],
            [50, 51, 20, 20, 0.9, 0.1, 0.7],
            [90, 90, 10, 10, 0.2, 0.9, 0.1],
        )
    )[0]
    assert found[:, 5].tolist() == [0, 1]
    assert found[:, 4].tolist() == pytest.approx([0.72, 0.63])
    assert found[0, :4].tolist() == [40, 40, 60, 60]


def test_one_box_may_have_several_labels_where_asked() -> None:
    both = predictions([50, 50, 20, 20, 0.9, 0.8, 0.7])
    assert len(suppress(both)[0]) == 1
    assert suppress(both, Suppression(several_labels=True))[0][:, 5].tolist() == [0, 1]


def test_nothing_sure_is_no_boxes() -> None:
    found = suppress(torch.full((2, 10, 7), 0.01))
    assert [tuple(rows.shape) for rows in found] == [(0, 6), (0, 6)]


def test_a_validation_image_full_of_candidates_is_soon_done() -> None:
    gen = torch.Generator().manual_seed(0)
    rows = torch.rand(1, 25_200, 85, generator=gen)
    rows[..., :4] *= 600
    began = time.process_time()
    found = suppress(rows, VALIDATION)[0]
    assert len(found) == 300
    assert time.process_time() - began < 1.5
    crowd = rows.clone()
    crowd[..., :2] = 300 + crowd[..., :2] / 100
    crowd[..., 2:4] = 100 + crowd[..., 2:4] / 100
    began = time.process_time()
    assert 80 <= len(suppress(crowd, VALIDATION)[0]) < 300
    assert time.process_time() - began < 2


def test_classes_that_are_not_looked_for_are_left_out_and_others_may_take_their_place() -> None:
    box = [50.0, 50.0, 20.0, 20.0, 0.9]
    rows = torch.tensor([[[*box, 0.9, 0.1], [*box, 0.2, 0.8], [10.0, 10.0, 4.0, 4.0, 0.9, 0.0, 0.9]]])

    def labels(**rule: Any) -> list[int]:
        return [int(row[5]) for row in suppress(rows, Suppression(**rule))[0]]

    assert labels() == [0, 1, 1]
    assert labels(classes=(1,)) == [1, 1]
    assert labels(classes=(7,)) == []
    assert labels(across_classes=True) == [0, 1]
    assert labels(across_classes=True, limit=1) == [0]
