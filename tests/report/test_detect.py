from __future__ import annotations

import pytest

from oomph.detect import Scores
from oomph.report import ScoresReport, emit


def test_a_size_without_objects_has_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"small": None, "medium": 0.25, "large": None}
    emit(ScoresReport(Scores(0.5, 0.4, 0.5, 0.5, sizes, (), 1, 3)), as_json=False)
    assert "by object size: small –, medium 0.250, large –; 1 image\n" in capsys.readouterr().out  # noqa: RUF001
