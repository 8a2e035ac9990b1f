from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from oomph.detect import ImageResult, Scores, labels_plot, score, validation_plots
from oomph.detect.plots import confusion_plot, precision_recall_plot
from oomph.detect.plots._class_labels import class_labels

UGLY = ("$x_$", "<script>", "two\nlines", "猫", "y" * 99, "", "\\alpha", "قطة")


def found(class_count: int) -> list[ImageResult]:
    """Return an image with a correct box of each class."""
    classes = np.arange(class_count, dtype=np.float32)[:, None]
    corners = np.concatenate((classes * 20, classes * 0, classes * 20 + 10, classes * 0 + 10), 1)
    predictions = np.concatenate((corners, np.full_like(classes, 0.8), classes), 1)
    return [ImageResult(predictions, np.concatenate((classes, corners), 1))]


def scored(results: list[ImageResult], names: tuple[str, ...]) -> Scores:
    return score(results, names)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize("names", [("item",), UGLY])
def test_all_plots_are_drawn_whatever_the_names(names: tuple[str, ...]) -> None:
    results = found(len(names))
    plots = validation_plots(results, scored(results, names), names)
    assert list(plots) == ["PR_curve.png", "F1_curve.png", "P_curve.png", "R_curve.png", "confusion_matrix.png"]
    for draw in plots.values():
        with Image.open(io.BytesIO(draw())) as image:
            assert image.format == "PNG"


def test_a_few_classes_are_named_and_many_are_not(figures: list[Figure]) -> None:
    for count in (2, 80):
        names = tuple(f"class {number}" for number in range(count))
        results = found(count)
        plots = validation_plots(results, scored(results, names), names)
        plots["F1_curve.png"]()
        plots["confusion_matrix.png"]()
    few_curves, few_cells, many_curves, many_cells = figures
    assert legend(few_curves) == ["all classes 1.00 at 0.000", "class 0", "class 1"]
    assert [text.get_text() for text in few_cells.axes[0].texts] == ["1.00", "1.00"]
    assert legend(many_curves) == ["all classes 1.00 at 0.000"]
    assert len(many_curves.axes[0].lines) == 81
    assert not many_cells.axes[0].texts
    assert len(many_cells.axes[0].get_yticklabels()) == 81


def test_precision_and_recall_have_every_class_with_boxes(figures: list[Figure]) -> None:
    results = found(2)
    precision_recall_plot(scored(results, ("cat", "dog", "cow")))
    assert legend(figures[0]) == ["all classes 1.000 mAP50", "cat 1.000", "dog 1.000"]


def test_without_boxes_the_plots_say_so(figures: list[Figure]) -> None:
    empty = [ImageResult(np.zeros((0, 6), np.float32), np.zeros((0, 5), np.float32))]
    plots = validation_plots(empty, scored(empty, ("a",)), ("a",))
    plots["PR_curve.png"]()
    plots["R_curve.png"]()
    plots["confusion_matrix.png"]()
    assert [[text.get_text() for text in figure.axes[0].texts] for figure in figures] == [["no labeled boxes"]] * 2 + [
        []
    ]
    assert figures[2].axes[0].get_xlabel() == "true class (gray: none)"


def test_the_matrix_has_background_last_and_fractions_of_columns(figures: list[Figure]) -> None:
    confusion_plot(np.array([[3, 2], [1, 0]]), ["cat"])
    area = figures[0].axes[0]
    assert [label.get_text() for label in area.get_xticklabels()] == ["cat", "background"]
    texts = {text.get_position(): text.get_text() for text in area.texts}
    assert texts == {(0, 0): "0.75", (1, 0): "1.00", (0, 1): "0.25"}


def test_class_names_without_a_font_have_their_number() -> None:
    assert class_labels(["cat?", "\U00014646"])[0] == "cat?"
    assert class_labels(["cat", "\U00014646\U00014646"])[1] in {"1 ??", "\U00014646\U00014646"}  # some fonts have them


def test_labels_are_counted_by_class(figures: list[Figure]) -> None:
    boxes = np.array([[0, 0.5, 0.5, 0.1, 0.2], [2, 0.1, 0.9, 1, 1], [2, 0.1, 0.9, 1, 1]], np.float32)
    labels_plot(boxes, ("$x_$", "b", "c"))
    counts, centers, sizes = figures[0].axes
    assert [bar.get_width() for bar in counts.patches] == [1, 0, 2]  # type: ignore[attr-defined]
    assert [label.get_text() for label in counts.get_yticklabels()] == ["$x_$", "b", "c"]
    assert counts.get_title() == "3 boxes by class"
    assert centers.get_ylim() == (1, 0)  # as in images
    assert sizes.get_xlim() == (0, 1)


@pytest.mark.parametrize(("boxes", "classes"), [(0, 1), (5, 60)])
def test_labels_are_drawn_without_boxes_and_with_many_classes(boxes: int, classes: int) -> None:
    rows = np.full((boxes, 5), 0.5, np.float32)
    rows[:, 0] = 1
    assert labels_plot(rows, [str(number) for number in range(classes)]).startswith(b"\x89PNG")
