from __future__ import annotations

from oomph.charts import draw_chart
from oomph.detect import ClassScore, Scores, epoch_chart, precision_recall_chart


def test_precision_recall_chart_has_every_class_with_boxes() -> None:
    cat = ClassScore("cat", 3, 0.5, 0.4, 0.5, 0.5, 0.3, (1.0,) * 51 + (0.0,) * 50)
    dog = ClassScore("dog", 0, None, None, None, None, None, ())
    chart = precision_recall_chart(Scores(0.5, 0.4, 0.5, 0.5, {}, (cat, dog), 1, 3))
    assert [line.name for line in chart.lines] == ["all 0.500", "cat 0.500"]
    assert chart.lines[0].y == cat.curve
    assert draw_chart(chart).size == (800, 500)


def test_epoch_chart_has_a_line_per_value() -> None:
    chart = epoch_chart("losses", [1, 2], {"box_loss": [3.0, 2.0], "obj_loss": [1.0, 0.5]})
    assert [(line.name, line.x, line.y) for line in chart.lines] == [
        ("box_loss", (1, 2), (3.0, 2.0)),
        ("obj_loss", (1, 2), (1.0, 0.5)),
    ]
    assert chart.integer_x
