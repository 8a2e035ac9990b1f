from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import matplotlib as mpl
from PIL import Image

from oomph.charts import figure_png, new_figure, try_draw


def draw(number: int = 0) -> bytes:
    figure = new_figure(200, 100)
    figure.add_subplot().plot([0, 1], [0, number])
    return figure_png(figure)


def test_a_figure_has_its_size_in_pixels_whatever_the_settings_of_the_user() -> None:
    with mpl.rc_context({"savefig.dpi": 20, "figure.dpi": 30, "savefig.bbox": "tight"}):
        content = draw()
    with Image.open(io.BytesIO(content)) as image:
        assert (image.format, image.size) == ("PNG", (200, 100))


def test_drawing_changes_no_settings() -> None:
    before = dict(mpl.rcParams)
    draw()
    assert dict(mpl.rcParams) == before


def test_threads_draw_the_same_as_one() -> None:
    expected = [draw(number) for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(draw, range(4))) == expected
    assert len(set(expected)) > 1


def test_a_plot_that_fails_is_a_sentence() -> None:
    messages: list[str] = []

    def fail() -> bytes:
        raise RuntimeError("Failed to process\nstring " + "x" * 200)

    assert try_draw("a.png", fail, messages.append) is None
    assert messages[0].startswith("a.png could not be drawn: Failed to process string x")
    assert len(messages[0]) < 160
    assert try_draw("a.png", lambda: b"1", messages.append) == b"1"
    assert len(messages) == 1
