from __future__ import annotations

from oomph.charts import font
from oomph.charts._style import fit_text


def test_a_text_is_shortened_only_if_it_is_too_wide() -> None:
    assert fit_text("batch 16", 12, 200) == "batch 16"
    shortened = fit_text("batch 16, optimizer AdamW", 12, 80)
    assert shortened.endswith("...")
    assert shortened.startswith("batch 16")
    assert font(12).getlength(shortened) <= 80
