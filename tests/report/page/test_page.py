"""The frame of pages: text stays text, and nothing leaves the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomph.report.page import PageFigure, PageTable, chart_text, render_page
from oomph.report.page._page import script_json
from tests.browser import opened

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
TEMPLATE = """{% extends "page.html" %}{% import "parts.html" as parts %}
{% block title %}{{ title }}{% endblock %}{% block header %}<h1>{{ title }}</h1>{% endblock %}
{% block main %}{{ parts.chart(figure, nonce) }}{{ parts.command(title) }}{% endblock %}"""


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    (tmp_path / "test.html").write_text(TEMPLATE)
    figure = PageFigure(
        name="memory",
        title=HOSTILE,
        summary=HOSTILE,
        data=[{"type": "scatter", "x": [1, 2, 3], "y": [4, float("nan"), 6], "name": chart_text(HOSTILE)}],
        layout={"xaxis": {"title": {"text": chart_text(HOSTILE)}}, "showlegend": True},
        table=PageTable((HOSTILE, "b"), ((HOSTILE, "1"),)),
    )
    path = tmp_path / "a 'quoted' \"page\".html"
    path.write_text(render_page("test.html", folder=tmp_path, title=HOSTILE, figure=figure), encoding="utf-8")
    return path


def test_json_in_a_script_element_cannot_end_it_and_has_no_nan() -> None:
    text = script_json({"a": [HOSTILE, float("nan"), float("inf"), (1, 2.5)]})
    assert "<" not in text
    assert json.loads(text) == {"a": [HOSTILE, None, None, [1, 2.5]]}


def test_a_page_is_one_file_below_8_mb_whose_scripts_all_have_the_nonce(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    assert len(text) < 8e6
    start = text.index("'nonce-") + len("'nonce-")
    nonce = text[start : text.index("'", start)]
    head, _, tail = text.partition('<script nonce="')  # plotly's own script contains script elements as text
    assert head.count("<script") == head.count(f'nonce="{nonce}"')
    assert tail.startswith(nonce)


@pytest.mark.medium
def test_hostile_texts_are_shown_and_nothing_is_executed_or_requested(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file) as tab:
        tab.page.wait_for_selector(".js-plotly-plot .main-svg")
        assert tab.page.title() == HOSTILE
        assert tab.page.inner_text("h1") == HOSTILE
        assert tab.page.text_content(".legendtext") == HOSTILE
        assert tab.page.text_content("tbody th") == HOSTILE
        assert tab.page.locator("img").count() == 0
        background = "getComputedStyle(document.body).backgroundColor"
        light = tab.page.evaluate(background), tab.page.evaluate("document.querySelector('.plot').layout.template")
        tab.page.emulate_media(color_scheme="dark")
        tab.page.wait_for_function(
            "old => JSON.stringify(document.querySelector('.plot').layout.template) !== old",
            arg=json.dumps(light[1], separators=(",", ":")),
        )
        assert tab.page.evaluate(background) != light[0]


@pytest.mark.medium
def test_a_command_is_copied_by_keyboard(browser: Any, page_file: Path) -> None:
    with opened(browser, page_file, permissions=["clipboard-read", "clipboard-write"]) as tab:
        tab.page.focus("button[data-copy]")
        tab.page.keyboard.press("Enter")
        tab.page.wait_for_function("document.querySelector('button[data-copy]').textContent === 'Copied'")
        assert tab.page.evaluate("navigator.clipboard.readText()") == HOSTILE
