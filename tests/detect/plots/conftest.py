from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from oomph.charts import figure_png
from oomph.detect.plots import _confusion_plot, _curve_plots, _epoch_plots, _labels_plot


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn."""
    drawn: list[Figure] = []

    def record(figure: Figure) -> bytes:
        drawn.append(figure)
        return figure_png(figure)

    for module in (_confusion_plot, _curve_plots, _epoch_plots, _labels_plot):
        monkeypatch.setattr(module, "figure_png", record)
    return drawn
