from __future__ import annotations

import numpy as np

from oomph.detect import frames


def test_frames_hold_their_images_with_little_border() -> None:
    rng = np.random.default_rng(0)
    shapes = [(int(high), int(wide)) for high, wide in rng.integers(200, 900, (37, 2))]
    found = frames(shapes, 640, 8)
    assert sorted(index for frame in found for index in frame.indices) == list(range(37))
    for frame in found:
        assert len(frame.indices) <= 8
        assert frame.size[0] % 32 == frame.size[1] % 32 == 0
        for index in frame.indices:
            ratio = 640 / max(shapes[index])
            assert shapes[index][0] * ratio <= frame.size[0]
            assert shapes[index][1] * ratio <= frame.size[1]
    area = sum(frame.size[0] * frame.size[1] * len(frame.indices) for frame in found)
    assert area < 0.85 * 37 * 672**2
    assert frames([], 640, 8) == []


def test_all_images_of_one_shape_share_a_frame() -> None:
    assert [frame.size for frame in frames([(480, 640)] * 5, 640, 4)] == [(512, 672), (512, 672)]
