from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from oomph.detect import Augmentation, build_sample, choose_images, compose_sample
from oomph.detect.dataset import _pixels
from oomph.detect.dataset._augmentation import fractions_to_pixels, pixels_to_fractions

COLORS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0))
NO_COLOR = {"hsv_h": 0.0, "hsv_s": 0.0, "hsv_v": 0.0}


class ColoredRectangles:
    """Gray images of odd sizes, each with two rectangles in the color of their class; the upper one is labeled."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._images, self._labels = [], []
        for shape in ((90, 120), (200, 100), (64, 64), (50, 160)):
            image = np.full((*shape, 3), 30, np.uint8)
            rows = []
            for label in rng.choice(4, 2, replace=False):
                high, wide = (int(side * rng.uniform(0.3, 0.5)) for side in shape)
                top, left = int(rng.uniform(0, shape[0] - high)), int(rng.uniform(0, shape[1] - wide))
                image[top : top + high, left : left + wide] = COLORS[label]
                box = ((left + wide / 2) / shape[1], (top + high / 2) / shape[0], wide / shape[1], high / shape[0])
                rows.append([label, *box])
            self._images.append(image)
            self._labels.append(np.array(rows[-1:], dtype=np.float32))

    def __len__(self) -> int:
        return len(self._images)

    def image(self, index: int) -> NDArray[np.uint8]:
        return self._images[index]

    def labels(self, index: int) -> NDArray[np.float32]:
        return self._labels[index]


def colored_fraction(image: NDArray[np.uint8], row: NDArray[np.float32]) -> float:
    """Return the fraction of a box that has the color of its class."""
    high, wide = image.shape[:2]
    left, right = ((row[1] - row[3] / 2) * wide, (row[1] + row[3] / 2) * wide)
    top, bottom = ((row[2] - row[4] / 2) * high, (row[2] + row[4] / 2) * high)
    inside = image[round(float(top)) : round(float(bottom)), round(float(left)) : round(float(right))].astype(int)
    return float((np.abs(inside - COLORS[int(row[0])]).max(2) < 120).mean())


AUGMENTATIONS = {
    "mosaic": Augmentation(**NO_COLOR),
    "single": Augmentation(mosaic=0, **NO_COLOR),
    "none": Augmentation(mosaic=0, translate=0, scale=0, fliplr=0, **NO_COLOR),
    "flipped": Augmentation(flipud=1.0, fliplr=1.0, **NO_COLOR),
    "perspective": Augmentation(perspective=0.0003, scale=0.2, **NO_COLOR),
}


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_boxes_stay_on_their_objects(name: str, backend: str) -> None:
    source = ColoredRectangles()
    boxes = 0
    for index in range(12):
        image, labels = build_sample(source, index % 4, 160, AUGMENTATIONS[name], (1, 2, index))
        assert image.shape == (160, 160, 3)
        assert image.dtype == np.uint8
        assert labels.dtype == np.float32
        low, high = labels[:, 1:3] - labels[:, 3:5] / 2, labels[:, 1:3] + labels[:, 3:5] / 2
        assert (low > -1e-5).all()
        assert (high < 1 + 1e-5).all()
        for row in labels:
            assert colored_fraction(image, row) > 0.8, (name, index, backend)
        boxes += len(labels)
    assert boxes >= 8


def test_a_rotated_box_contains_its_object(backend: str) -> None:
    rotated = Augmentation(mosaic=0, degrees=30, shear=5, scale=0, translate=0, **NO_COLOR)
    for index in range(4):
        image, labels = build_sample(ColoredRectangles(), index, 160, rotated, (0, index))
        for row in labels:
            is_object = np.abs(image.astype(int) - COLORS[int(row[0])]).max(2) < 60
            ys, xs = np.nonzero(is_object)
            inside = (np.abs(xs / 160 - row[1]) <= row[3] / 2 + 0.02) & (np.abs(ys / 160 - row[2]) <= row[4] / 2 + 0.02)
            assert inside.mean() > 0.95, (index, backend)


def test_a_sample_depends_on_its_key_alone(backend: str) -> None:
    source = ColoredRectangles()
    augmentation = Augmentation(mixup=0.5, degrees=5)
    first = [build_sample(source, index, 96, augmentation, (7, 3, index)) for index in range(4)]
    again = [build_sample(source, index, 96, augmentation, (7, 3, index)) for index in reversed(range(4))][::-1]
    for (image, labels), (other_image, other_labels) in zip(first, again, strict=True):
        assert np.array_equal(image, other_image)
        assert np.array_equal(labels, other_labels)
    next_epoch = build_sample(source, 0, 96, augmentation, (7, 4, 0))
    assert not np.array_equal(first[0][0], next_epoch[0]), backend


def test_images_can_be_chosen_before_the_sample_is_composed() -> None:
    source = ColoredRectangles()
    augmentation = Augmentation(mixup=0.5, mosaic=0.7)
    counts = set()
    for index in range(20):
        rng = np.random.default_rng((3, index))
        chosen = choose_images(index % 4, 4, augmentation, rng)
        counts.add(len(chosen))
        assert index % 4 in chosen
        canvas = np.zeros((96, 96, 3), np.uint8)
        images = [(source.image(number), source.labels(number)) for number in chosen]
        labels = compose_sample(images, canvas, augmentation, rng)
        image, expected = build_sample(source, index % 4, 96, augmentation, (3, index))
        assert np.array_equal(canvas, image)
        assert np.array_equal(labels, expected)
    assert counts == {1, 4, 8}


def test_opencv_and_pillow_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cv2")
    source = ColoredRectangles()
    opencv = build_sample(source, 1, 160, Augmentation(), (0, 5))
    monkeypatch.setattr(_pixels, "opencv", lambda: None)
    pillow = build_sample(source, 1, 160, Augmentation(), (0, 5))
    assert np.array_equal(opencv[1], pillow[1])
    assert np.abs(opencv[0].astype(int) - pillow[0]).mean() < 3


@pytest.mark.usefixtures("backend")
def test_the_part_beyond_the_canvas_is_neither_labeled_nor_drawn() -> None:
    class WhiteImages:
        """White images that are one box each."""

        def __len__(self) -> int:
            return 4

        def image(self, index: int) -> NDArray[np.uint8]:
            del index
            return np.full((100, 100, 3), 255, np.uint8)

        def labels(self, index: int) -> NDArray[np.float32]:
            return np.array([[index, 0.5, 0.5, 1.0, 1.0]], np.float32)

    augmentation = Augmentation(scale=0.5, translate=0.1, fliplr=0, **NO_COLOR)
    with_margin = 0
    for key in range(60):
        image, labels = build_sample(WhiteImages(), 0, 100, augmentation, (key,))
        boxes = fractions_to_pixels(labels, (100, 100), (0, 0))
        labeled = np.zeros((100, 100), np.bool_)
        for _, left, top, right, bottom in boxes:
            labeled[max(round(top) - 1, 0) : round(bottom) + 1, max(round(left) - 1, 0) : round(right) + 1] = True
        drawn = image[..., 0] > 200
        if len(boxes) == 4:  # images with less than a tenth visible are drawn without their box
            assert not (drawn & ~labeled).any()
            with_margin += int((~drawn).sum() > 500)
    assert with_margin > 3


def test_fractions_and_pixels_are_inverse() -> None:
    labels = np.array([[1, 0.5, 0.25, 0.2, 0.1]], dtype=np.float32)
    assert np.allclose(pixels_to_fractions(fractions_to_pixels(labels, (64, 64), (0, 0)), 64), labels)
