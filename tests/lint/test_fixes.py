"""A fix after which code would no longer parse is not written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oomph.lint import Edit, Problem, Rule, RuleFamily, Span, fix_text, lint_paths
from oomph.lint.sources import Document


def _check(document: Document) -> Iterator[Problem]:
    """Yield each `good` and `bad`: the fix of the second is no Python."""
    for line in document.lines:
        for word, text in (("good", "fine"), ("bad", "not !")):
            column = line.text.find(word)
            if column >= 0:
                span = Span(line.span.cell, line.span.line, column, line.span.line, column + len(word))
                yield Problem(span, "wrong", (Edit(span, text),))


@pytest.fixture(autouse=True)
def _only_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Rule("wrong-word", RuleFamily.LEAKS, "A wrong word", _check, triggers=("good", "bad"), is_fixable=True)
    monkeypatch.setattr("oomph.lint._lint.RULES", (rule,))


def notebook(*sources: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": source} for source in sources]}, indent=1)


@pytest.mark.parametrize(
    ("name", "text", "fixed"),
    [
        ("a.py", "good = 1\nbad = 2\nx = good\nx = bad\ngood()\n", "fine = 1\nbad = 2\nx = fine\nx = bad\nfine()\n"),
        ("a.md", "good\n```py\nbad\n```\n```py\ngood\n```\n", "fine\n```py\nbad\n```\n```py\nfine\n```\n"),
        ("a.ipynb", notebook("good\nbad", "%time bad\n!ls\ngood"), notebook("fine\nbad", "%time not !\n!ls\nfine")),
        # What was no Python before can't break.
        ("a.md", "bad\n```python\n)\nbad\n```\n", "not !\n```python\n)\nnot !\n```\n"),
    ],
)
def test_only_fixes_that_parse_are_written(tmp_path: Path, name: str, text: str, fixed: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    result = lint_paths([path], fix=True)
    assert path.read_text() == fixed
    assert fix_text(text, name)[0] == fixed
    assert result.fixed.get(str(path), 0) == text.count("good") + text.count("bad") - fixed.count("bad")
    is_left = bool(result.diagnostics)
    assert is_left is ("bad" in fixed)
    assert (str(path) in result.unfixed) is is_left


def test_reason_names_the_places(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_text(notebook("x = 1", "y = 2\nz = bad"))
    result = lint_paths([path], fix=True)
    assert result.unfixed == {str(path): "the code would no longer parse with the correction at cell 1:2:5"}
    assert not result.fixed
