from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from oomph.detect import Augmentation, choose, compose, sample
from oomph.detect.dataset import _pixels as pixels
from oomph.detect.dataset._augmentation import to_fractions, to_pixels

COLOURS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0))
STILL = Augmentation(mosaic=0, hue=0, saturation=0, value=0, translate=0, scale=0, flip_horizontal=0)


class Squares:
    """Grey images of odd sizes, each with two rectangles of a colour that are its boxes."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._images, self._labels = [], []
        for shape in ((90, 120), (200, 100), (64, 64), (50, 160)):
            image = np.full((*shape, 3), 30, np.uint8)
            rows = []
            for label in rng.choice(4, 2, replace=False):
                high, wide = (int(side * rng.uniform(0.3, 0.5)) for side in shape)
                top, left = int(rng.uniform(0, shape[0] - high)), int(rng.uniform(0, shape[1] - wide))
                image[top : top + high, left : left + wide] = COLOURS[label]
                box = ((left + wide / 2) / shape[1], (top + high / 2) / shape[0], wide / shape[1], high / shape[0])
                rows.append([label, *box])
            self._images.append(image)
            self._labels.append(np.array(rows[-1:], dtype=np.float32))  # the one on top, seen whole

    def __len__(self) -> int:
        return len(self._images)

    def image(self, index: int) -> NDArray[np.uint8]:
        return self._images[index]

    def labels(self, index: int) -> NDArray[np.float32]:
        return self._labels[index]


@pytest.fixture(params=["opencv", "pillow"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways of moving pixels."""
    if request.param == "opencv":
        pytest.importorskip("cv2")
    else:
        monkeypatch.setattr(pixels, "opencv", lambda: None)
    return request.param


def filled(image: NDArray[np.uint8], row: NDArray[np.float32]) -> float:
    """How much of a box has the colour of its class."""
    high, wide = image.shape[:2]
    left, right = ((row[1] - row[3] / 2) * wide, (row[1] + row[3] / 2) * wide)
    top, bottom = ((row[2] - row[4] / 2) * high, (row[2] + row[4] / 2) * high)
    inside = image[round(float(top)) : round(float(bottom)), round(float(left)) : round(float(right))].astype(int)
    return float((np.abs(inside - COLOURS[int(row[0])]).max(2) < 120).mean())


CHANGES = {
    "mosaic": Augmentation(hue=0, saturation=0, value=0),
    "alone": Augmentation(mosaic=0, hue=0, saturation=0, value=0),
    "still": STILL,
    "upside": Augmentation(hue=0, saturation=0, value=0, flip_vertical=1.0, flip_horizontal=1.0),
    "tilted": Augmentation(hue=0, saturation=0, value=0, perspective=0.0003, scale=0.2),
}


@pytest.mark.parametrize("name", CHANGES)
def test_boxes_stay_on_what_they_are_about(name: str, path: str) -> None:
    source = Squares()
    seen = 0
    for index in range(12):
        image, labels = sample(source, index % 4, 160, CHANGES[name], (1, 2, index))
        assert image.shape == (160, 160, 3)
        assert image.dtype == np.uint8
        assert labels.dtype == np.float32
        low, high = labels[:, 1:3] - labels[:, 3:5] / 2, labels[:, 1:3] + labels[:, 3:5] / 2
        assert (low > -1e-5).all()
        assert (high < 1 + 1e-5).all()
        for row in labels:
            assert filled(image, row) > 0.8, (name, index, path)
        seen += len(labels)
    assert seen >= 8


def test_a_rotated_box_still_holds_its_object(path: str) -> None:
    turned = Augmentation(mosaic=0, hue=0, saturation=0, value=0, degrees=30, shear=5, scale=0, translate=0)
    for index in range(4):
        image, labels = sample(Squares(), index, 160, turned, (0, index))
        for row in labels:
            colour = np.abs(image.astype(int) - COLOURS[int(row[0])]).max(2) < 60
            ys, xs = np.nonzero(colour)
            inside = (np.abs(xs / 160 - row[1]) <= row[3] / 2 + 0.02) & (np.abs(ys / 160 - row[2]) <= row[4] / 2 + 0.02)
            assert inside.mean() > 0.95, (index, path)


def test_a_sample_depends_on_its_key_alone(path: str) -> None:
    source = Squares()
    change = Augmentation(mixup=0.5, degrees=5)
    first = [sample(source, index, 96, change, (7, 3, index)) for index in range(4)]
    again = [sample(source, index, 96, change, (7, 3, index)) for index in reversed(range(4))][::-1]
    for (image, labels), (other, others) in zip(first, again, strict=True):
        assert np.array_equal(image, other)
        assert np.array_equal(labels, others)
    elsewhere = sample(source, 0, 96, change, (7, 4, 0))
    assert not np.array_equal(first[0][0], elsewhere[0]), path


def test_a_loader_can_ask_first_and_paint_later() -> None:
    source = Squares()
    change = Augmentation(mixup=0.5, mosaic=0.7)
    kinds = set()
    for index in range(20):
        rng = np.random.default_rng((3, index))
        chosen = choose(index % 4, 4, change, rng)
        kinds.add(len(chosen))
        assert index % 4 in chosen
        canvas = np.zeros((96, 96, 3), np.uint8)
        labels = compose([(source.image(one), source.labels(one)) for one in chosen], canvas, change, rng)
        image, expected = sample(source, index % 4, 96, change, (3, index))
        assert np.array_equal(canvas, image)
        assert np.array_equal(labels, expected)
    assert kinds == {1, 4, 8}


def test_both_ways_of_moving_pixels_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cv2")
    source = Squares()
    fast = sample(source, 1, 160, Augmentation(), (0, 5))
    monkeypatch.setattr(pixels, "opencv", lambda: None)
    slow = sample(source, 1, 160, Augmentation(), (0, 5))
    assert np.array_equal(fast[1], slow[1])
    assert np.abs(fast[0].astype(int) - slow[0]).mean() < 3


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("key", range(30))
def test_a_scaled_image_lies_where_it_is_said_to(key: int) -> None:
    rng = np.random.default_rng(key)
    wide, high = (int(side) for side in rng.integers(40, 200, 2))
    slope = np.stack(np.meshgrid(np.arange(wide), np.arange(high)), -1)
    image = np.ascontiguousarray(np.concatenate((slope, slope[..., :1] * 0), 2).astype(np.uint8))
    canvas = pixels.blank(100, 120)
    scale, shift = float(rng.uniform(0.55, 1.5)), tuple(float(by) for by in rng.uniform(-90, 60, 2))
    placed = pixels.scale_into(canvas, image, (scale, scale), (shift[0], shift[1]))
    drawn = np.argwhere(canvas[..., 2] == 0)[:, ::-1]  # (x, y) of the pixels that were
    for axis, side in enumerate((wide, high)):
        seen = (np.array([0, side]) * scale + shift[axis]).clip(0, canvas.shape[1 - axis])
        moved = (seen - shift[axis]) / scale - (seen - placed.shift[axis]) / placed.scale[axis]
        assert np.abs(moved).max() < 1.01  # half a pixel at each end, and that of the canvas is rounded too
        if len(drawn):
            at = (drawn[:, axis] + 0.5 - placed.shift[axis]) / placed.scale[axis] - 0.5
            inner = (at > at.min() + 2) & (at < at.max() - 2)
            off = canvas[drawn[:, 1], drawn[:, 0], axis] - at
            narrow = np.ptp(at) < 33  # where it is to be seen
            assert abs(off[inner].mean() if inner.any() else 0) < (0.6 if narrow else 0.25)


@pytest.mark.usefixtures("path")
def test_what_lies_beyond_the_canvas_is_neither_labelled_nor_drawn() -> None:
    class Full:
        """White images that are one box each."""

        def __len__(self) -> int:
            return 4

        def image(self, index: int) -> NDArray[np.uint8]:
            del index
            return np.full((100, 100, 3), 255, np.uint8)

        def labels(self, index: int) -> NDArray[np.float32]:
            return np.array([[index, 0.5, 0.5, 1.0, 1.0]], np.float32)

    shrunk = Augmentation(hue=0, saturation=0, value=0, scale=0.5, translate=0.1, flip_horizontal=0)
    beyond = 0
    for key in range(60):
        image, labels = sample(Full(), 0, 100, shrunk, (key,))
        boxes = to_pixels(labels, (100, 100), (0, 0))
        seen = np.zeros((100, 100), np.bool_)
        for _, left, top, right, bottom in boxes:
            seen[max(round(top) - 1, 0) : round(bottom) + 1, max(round(left) - 1, 0) : round(right) + 1] = True
        drawn = image[..., 0] > 200
        small = 4 - len(boxes)  # tiles of which less than a tenth is left are drawn without their box
        if not small:
            assert not (drawn & ~seen).any()
            beyond += int((~drawn).sum() > 500)
    assert beyond > 3, "some look past the edge of the canvas"


@pytest.mark.parametrize(
    "gains", [(1.0, 1.0, 1.0), (1.0, 0.5, 1.0), (1.0, 1.4, 0.7), (1.01, 1.2, 1.2), (1.4, 1.0, 1.0), (1.9, 1.0, 0.9)]
)
def test_colours_change_as_hue_saturation_and_value_say(gains: tuple[float, float, float], path: str) -> None:
    import colorsys

    rng = np.random.default_rng(0)
    image = rng.integers(20, 236, (8, 8, 3), dtype=np.uint8)
    changed = pixels.recolour(image, *gains)
    off = []
    for before, after in zip(image.reshape(-1, 3), changed.reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*(before / 255))
        parts = (hue * gains[0] % 1, min(saturation * gains[1], 1), min(value * gains[2], 1))
        expected = np.array(colorsys.hsv_to_rgb(*parts)) * 255
        off.append(np.abs(expected - after).max())
    assert np.median(off) < 6, path
    assert np.quantile(off, 0.95) < 16


def test_fractions_and_pixels_are_inverse() -> None:
    labels = np.array([[1, 0.5, 0.25, 0.2, 0.1]], dtype=np.float32)
    assert np.allclose(to_fractions(to_pixels(labels, (64, 64), (0, 0)), 64), labels)
