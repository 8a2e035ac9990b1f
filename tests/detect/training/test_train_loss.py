from __future__ import annotations

import pytest
import torch

import oomph
from oomph.detect import split_batch, yolov5
from oomph.detect.model._loss import DetectionLoss
from oomph.detect.training._train_loss import GroupLoss


def test_parts_add_up_over_pieces_and_steps_and_forget_what_was_tried_in_vain() -> None:
    torch.manual_seed(0)
    model = yolov5("n", classes=3).train().requires_grad_(False)
    plain = DetectionLoss(model, size=64)
    images = torch.rand(4, 3, 64, 64)
    targets = torch.tensor([[at, at % 3, 0.4, 0.5, 0.3, 0.2] for at in range(4)])
    outputs = model(images)
    parts = plain.parts(outputs, targets)
    expected = [float(parts.box), float(parts.objectness), float(parts.classes)]

    loss = GroupLoss(plain, torch.device("cpu"))

    def run(pieces: int, tried: int) -> float:
        whole = loss.normalizer((images, targets))
        levels = [level.split(4 // pieces) for level in outputs]
        found = 0.0
        for at, (_, own) in enumerate(split_batch((images, targets), pieces)[:tried]):
            found += float(loss([level[at] for level in levels], own, whole))
        return found

    run(pieces=4, tried=3)  # and then memory ran short
    assert run(pieces=2, tried=2) == pytest.approx(float(parts.total), rel=1e-5)
    assert loss.sums() == [0.0, 0.0, 0.0]
    assert loss.sums(with_step=True) == pytest.approx(expected, rel=1e-5)
    loss.count()
    run(pieces=1, tried=1)
    loss.count()
    assert loss.sums() == pytest.approx([2 * one for one in expected], rel=1e-5)
    other = GroupLoss(plain, torch.device("cpu"))
    other.begin(loss.sums())
    assert other.sums() == loss.sums()
    other.begin()
    assert other.sums() == [0.0, 0.0, 0.0]


def test_batches_up_to_an_update_count_by_their_images_and_nothing_is_said_of_it() -> None:
    torch.manual_seed(0)
    model = yolov5("n", classes=3)
    plain = DetectionLoss(model, size=64)
    few = (torch.rand(2, 3, 64, 64), torch.tensor([[0, 1, 0.4, 0.5, 0.3, 0.2]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for loss, said in ((GroupLoss(plain, torch.device("cpu")), 0), (plain, 1)):
        guard = oomph.guard(model=model, optimizer=optimizer, loss=loss, split=split_batch)
        guard.step(few, update=False)
        guard.step(few)
        assert len(guard.notices) == said
        guard.close()
