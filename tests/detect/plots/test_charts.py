from __future__ import annotations

import math

import numpy as np
import pytest

from oomph.detect.dataset._pixels import blank
from oomph.detect.metrics._scores import ClassScore, Scores
from oomph.detect.plots._charts import Chart, Line, _Frame, curves, draw_chart, precision_recall, ticks
from oomph.detect.plots._drawing import (
    COLOURS,
    DrawnBox,
    captioned,
    draw_boxes,
    found_boxes,
    labelled_boxes,
    sheet,
    true_boxes,
)


def has(image: np.ndarray, colour: tuple[int, int, int]) -> bool:
    return bool((image == colour).all(2).any())


def test_a_box_is_drawn_where_it_is_in_the_colour_of_its_class() -> None:
    image = blank(100, 200)
    drawn = draw_boxes(image, [DrawnBox((50, 40, 150, 90), 1, 0.7)], ["cat", "dog"])
    assert tuple(drawn[40, 140]) == COLOURS[1]
    assert tuple(drawn[90, 60]) == COLOURS[1]
    assert tuple(drawn[60, 100]) == (114, 114, 114)
    assert (image == 114).all()  # the image itself stays


def test_boxes_beyond_the_image_and_unknown_classes_are_drawn_without_a_fault() -> None:
    drawn = draw_boxes(blank(40, 40), [DrawnBox((-10, -10, 99, 99), 77), DrawnBox((30, 30, 20, 20), 0)], ["a"])
    assert drawn.shape == (40, 40, 3)


def test_rows_become_boxes() -> None:
    found = found_boxes(np.array([[1, 2, 3, 4, 0.5, 1]], dtype=np.float32))
    assert found == [DrawnBox((1, 2, 3, 4), 1, 0.5)]
    labels = labelled_boxes(np.array([[1, 0.5, 0.5, 0.5, 0.25]], dtype=np.float32), 100, 200)
    assert labels == [DrawnBox((50, 37.5, 150, 62.5), 1)]


def test_a_sheet_holds_its_images() -> None:
    red, wide = np.full((50, 50, 3), (255, 0, 0), np.uint8), np.full((20, 80, 3), (0, 255, 0), np.uint8)
    whole = sheet([red, wide, red], cell=64)
    assert whole.shape == (128, 128, 3)
    assert tuple(whole[32, 32]) == (255, 0, 0)
    assert tuple(whole[32, 96]) == (0, 255, 0)
    assert tuple(whole[5, 96]) == (114, 114, 114)
    assert sheet([]).shape == (320, 320, 3)


def test_a_chart_draws_each_line_and_survives_gaps() -> None:
    lines = (Line("a", (0, 1, 2, 3), (0.2, 0.4, math.nan, 1.0)), Line("b", (0, 1, 2, 3), (0.5,) * 4))
    drawn = draw_chart(Chart("title", "x", "y", lines))
    assert drawn.shape == (500, 800, 3)
    plot = drawn[60:430, 90:600]
    assert has(plot, COLOURS[0])
    assert has(plot, COLOURS[1])
    assert draw_chart(curves("losses", [], {"box": []})).shape == (500, 800, 3)
    assert draw_chart(curves("one point", [1], {"box": [3.0]})).shape == (500, 800, 3)


def test_precision_and_recall_of_every_class_with_boxes() -> None:
    there = ClassScore("cat", 3, 0.5, 0.4, 0.5, 0.5, 0.3, (1.0,) * 51 + (0.0,) * 50)
    none = ClassScore("dog", 0, None, None, None, None, None, ())
    chart = precision_recall(Scores(0.5, 0.4, 0.5, 0.5, {}, (there, none), 1, 3))
    assert [line.name for line in chart.lines] == ["all 0.500", "cat 0.500"]
    assert chart.lines[0].y == there.curve
    assert draw_chart(chart).shape == (500, 800, 3)


@pytest.mark.parametrize(
    ("low", "high", "whole", "expected"),
    [
        (1, 2, True, [1, 2]),
        (1, 1 + 1e-9, True, [1]),
        (1, 15, True, [5, 10, 15]),
        (1, 300, True, [100, 200, 300]),
        (0, 1, False, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0, 0.57, False, [0, 0.2, 0.4]),
    ],
)
def test_ticks_are_round_and_whole_where_nothing_is_between(
    low: float,
    high: float,
    whole: bool,  # noqa: FBT001  a row of the table
    expected: list[float],
) -> None:
    assert ticks(low, high, whole=whole) == expected


def test_words_of_a_box_at_the_right_edge_stay_inside() -> None:
    name = "a rather long name"
    edge, middle = (
        draw_boxes(blank(100, 300), [DrawnBox((left, 50, left + 8, 60), 1, 0.7)], ["", name]) for left in (288, 20)
    )
    painted = [int((image != 114).any(2).sum()) for image in (edge, middle)]
    assert painted[0] == painted[1] > 500


def test_labels_and_captions_are_drawn() -> None:
    assert true_boxes(np.array([[1, 2, 3, 4, 5]], dtype=np.float32)) == [DrawnBox((2, 3, 4, 5), 1)]
    image = blank(40, 200)
    assert (captioned(image, "words")[-40:] == image).all()
    assert sheet([blank(10, 20)] * 8, cell=32, across=2).shape == (128, 128, 3)


@pytest.mark.parametrize("values", [[0.1, 0.5], [-1.0, -0.5], [2.0, 2.0]])
def test_the_highest_line_is_not_drawn_on_the_frame(values: list[float]) -> None:
    frame = _Frame.around(curves("peak", [1, 2], {"measured": values}))
    assert frame.high > max(values)
    assert frame.low <= min(values)
