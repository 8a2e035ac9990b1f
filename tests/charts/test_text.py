from __future__ import annotations

import pytest
from matplotlib.text import Text

from oomph.charts import drawable_texts, figure_png, new_figure
from oomph.charts._text import _find_fonts

NO_FONT = "\U0001343f"  # an Egyptian hieroglyph control


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>", "<script>"),
        ("two\nlines\tand \x1b[2J", "two lines and [2J"),
        ("кот قطة", "кот قطة"),
        ("", ""),
        ("\ud800", ""),
        ("x" * 40, "x" * 29 + "…"),
    ],
)
def test_texts_are_on_one_line_and_short(text: str, shown: str) -> None:
    assert drawable_texts([text]) == [shown]


def test_characters_that_no_font_has_are_question_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.font_manager import fontManager

    default = [entry for entry in fontManager.ttflist if entry.name == "DejaVu Sans"]
    monkeypatch.setattr(fontManager, "ttflist", default)
    _find_fonts.cache_clear()
    assert drawable_texts(["cat 猫", "猫"]) == ["cat ?", "?"]
    _find_fonts.cache_clear()


def test_another_font_is_used_for_characters_that_the_default_one_lacks() -> None:
    """The fonts of formulas, which come with matplotlib, have characters that DejaVu Sans lacks."""
    character = "\ufb05"  # a ligature
    families, missing = _find_fonts(frozenset(f"a{character}"))
    assert not missing
    assert families[0] == "DejaVu Sans"
    assert len(families) <= 2
    figure = new_figure(200, 100)
    figure.text(0.1, 0.5, character)
    assert figure_png(figure)


def test_formulas_are_shown_as_text() -> None:
    """Without that, `$x_$` is an error and `$x$` an italic x without dollars."""
    figure = new_figure(300, 200)
    area = figure.add_subplot(title="$x_$", xlabel="$x$")
    area.set_xticks([0, 1], labels=["$x_$", "\\alpha_$"])
    area.plot([0, 1], [0, 1], label="$^$")
    figure.legend(loc="outside right upper")
    assert figure_png(figure).startswith(b"\x89PNG")
    assert not any(text.get_parse_math() for text in figure.findobj(Text) if "$" in text.get_text())
