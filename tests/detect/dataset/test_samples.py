from __future__ import annotations

import numpy as np
import torch

from oomph.detect.dataset import collate_boxes


def test_rows_start_with_the_number_of_their_sample() -> None:
    boxes = [np.ones((2, 5), np.float32), np.zeros((0, 5), np.float32), np.full((1, 5), 2, np.float32)]
    rows = collate_boxes(boxes)
    assert torch.equal(rows, torch.tensor([[0.0] + [1.0] * 5, [0.0] + [1.0] * 5, [2.0] + [2.0] * 5]))
    assert collate_boxes([np.zeros((0, 5), np.float32)]).shape == (0, 6)
