from __future__ import annotations

import numpy as np

from oomph.data import Shard
from oomph.detect import rect_batches
from oomph.detect.dataset import RectangularSampler


def random_shapes(count: int) -> list[tuple[int, int]]:
    rng = np.random.default_rng(0)
    return [(int(high), int(wide)) for high, wide in rng.integers(200, 900, (count, 2))]


def test_batches_hold_their_images_with_little_padding() -> None:
    shapes = random_shapes(37)
    batches = rect_batches(shapes, 640, 8)
    assert sorted(index for batch in batches for index in batch.indices) == list(range(37))
    for batch in batches:
        assert len(batch.indices) <= 8
        assert batch.size[0] % 32 == batch.size[1] % 32 == 0
        for index in batch.indices:
            ratio = 640 / max(shapes[index])
            assert shapes[index][0] * ratio <= batch.size[0]
            assert shapes[index][1] * ratio <= batch.size[1]
    area = sum(batch.size[0] * batch.size[1] * len(batch.indices) for batch in batches)
    assert area < 0.85 * 37 * 672**2
    assert rect_batches([], 640, 8) == []


def test_images_of_one_shape_share_a_canvas() -> None:
    assert [batch.size for batch in rect_batches([(480, 640)] * 5, 640, 4)] == [(512, 672), (512, 672)]


def test_ranks_take_turns() -> None:
    samplers = [RectangularSampler(tuple(random_shapes(37)), 640, 8, Shard(rank, 2)) for rank in range(2)]
    epochs = [sampler.epoch(0) for sampler in samplers]
    assert [len(batches) for batches in epochs] == [3, 2]
    indices = [index for batches in epochs for batch in batches for index in batch.indices.tolist()]
    assert sorted(indices) == list(range(37))
