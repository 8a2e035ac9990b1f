from __future__ import annotations

import pytest

from oomph.detect import DetectResult, ImageDetections, Scores
from oomph.report import DetectReport, ScoresReport, emit


def test_a_size_without_objects_has_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"small": None, "medium": 0.25, "large": None}
    emit(ScoresReport(Scores(0.5, 0.4, 0.5, 0.5, sizes, (), 1, 3)), as_json=False)
    assert "by object size: small –, medium 0.250, large –; 1 image\n" in capsys.readouterr().out  # noqa: RUF001


def test_detections_are_a_line_per_image(capsys: pytest.CaptureFixture[str]) -> None:
    boxes = ((0.0, 0.0, 1.0, 1.0, "cat", 0.9), (0.0, 0.0, 2.0, 2.0, "cat", 0.8), (0.0, 0.0, 3.0, 3.0, "dog", 0.7))
    images = (ImageDetections("a.png", "out/a.jpg", boxes), ImageDetections("b.png", "out/b.jpg", ()))
    emit(DetectReport(DetectResult(images, (("c.png", "truncated"),), "use --tiles 640")), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "a.png: 2 cat, 1 dog (out/a.jpg)",
        "b.png: no objects (out/b.jpg)",
        "c.png: skipped, truncated",
        "use --tiles 640",
    ]
