from __future__ import annotations

import numpy as np
import pytest
import torch

from oomph.detect import frames, letterbox
from oomph.detect._boxes import unletterbox


def test_an_image_lies_in_the_middle_of_its_frame() -> None:
    image = np.full((50, 100, 3), 200, np.uint8)
    framed, fit = letterbox(image, (64, 64))
    assert fit.ratio == 0.64
    assert fit.pad == (0.0, 16.0)
    assert (framed[:16] == 114).all()
    assert (framed[16:48] == 200).all()
    assert (framed[48:] == 114).all()


def test_a_small_image_grows_only_where_it_may() -> None:
    image = np.full((10, 10, 3), 200, np.uint8)
    assert letterbox(image, (64, 64))[1].ratio == 6.4
    framed, fit = letterbox(image, (64, 64), enlarge=False)
    assert (fit.ratio, fit.pad) == (1.0, (27.0, 27.0))
    assert (framed[27:37, 27:37] == 200).all()


def test_boxes_find_their_way_back_to_an_image_that_was_decoded_smaller() -> None:
    small = np.zeros((100, 150, 3), np.uint8)
    _, fit = letterbox(small, (64, 96), original=(400, 600))
    assert (fit.ratio, fit.original) == (0.16, (400, 600))
    back = unletterbox(torch.tensor([[16.0, 16.0, 48.0, 32.0]]), fit.ratio, fit.pad, fit.original)
    assert back[0].tolist() == pytest.approx([100, 100, 300, 200])


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
