from __future__ import annotations

import numpy as np

from oomph.charts import COLORS
from oomph.detect import DrawnBox, draw_boxes, label_boxes, prediction_boxes
from oomph.detect.dataset import gray_canvas
from oomph.detect.plots._drawing import truth_boxes


def test_a_box_is_drawn_in_the_color_of_its_class() -> None:
    image = gray_canvas(100, 200)
    drawn = draw_boxes(image, [DrawnBox((50, 40, 150, 90), 1, 0.7)], ["cat", "dog"])
    assert tuple(drawn[40, 140]) == COLORS[1]
    assert tuple(drawn[90, 60]) == COLORS[1]
    assert tuple(drawn[60, 100]) == (114, 114, 114)
    assert (image == 114).all()  # the image itself is unchanged


def test_boxes_beyond_the_image_and_unknown_classes_are_drawn() -> None:
    boxes = [DrawnBox((-10, -10, 99, 99), 77), DrawnBox((30, 30, 20, 20), 0)]
    assert draw_boxes(gray_canvas(40, 40), boxes, ["a"]).shape == (40, 40, 3)


def test_rows_become_boxes() -> None:
    predictions = np.array([[1, 2, 3, 4, 0.5, 1]], dtype=np.float32)
    assert prediction_boxes(predictions) == [DrawnBox((1, 2, 3, 4), 1, 0.5)]
    labels = np.array([[1, 0.5, 0.5, 0.5, 0.25]], dtype=np.float32)
    assert label_boxes(labels, 100, 200) == [DrawnBox((50, 37.5, 150, 62.5), 1)]
    truth = np.array([[1, 2, 3, 4, 5]], dtype=np.float32)
    assert truth_boxes(truth) == [DrawnBox((2, 3, 4, 5), 1)]


def test_text_at_the_right_edge_stays_inside() -> None:
    names = ["", "a rather long name"]
    edge, middle = (
        draw_boxes(gray_canvas(100, 300), [DrawnBox((left, 50, left + 8, 60), 1, 0.7)], names) for left in (288, 20)
    )
    drawn_pixels = [int((image != 114).any(2).sum()) for image in (edge, middle)]
    assert drawn_pixels[0] == drawn_pixels[1] > 500
