from __future__ import annotations

from pathlib import Path

import pytest

from oomph.lint import RULES, LintOptions, lint_paths, lint_text

from .cases import CASES, FILES, expected_places

DOCS = Path(__file__).parents[2] / "docs" / "lint"
NAMES = [rule.name for rule in RULES]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(CASES)) for path in FILES])
def test_marked_lines_are_reported_and_no_others(path: Path) -> None:
    result = lint_paths([path])
    places = [
        (diagnostic.problem.span.cell, diagnostic.problem.span.line, diagnostic.rule)
        for diagnostic in result.diagnostics
    ]
    assert sorted(places, key=str) == sorted(expected_places(path), key=str)


@pytest.mark.parametrize("name", NAMES)
def test_rule_has_wrong_and_right_cases(name: str) -> None:
    families = [path.parent for path in FILES if any(rule == name for _, _, rule in expected_places(path))]
    assert families, f"no case expects {name}"


@pytest.mark.parametrize("name", NAMES)
def test_rule_has_a_page_whose_examples_hold(name: str) -> None:
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# `{name}`\n")
    sections = dict(_sections(page))
    assert {"What happens", "How much", "Wrong", "Right"} <= sections.keys()
    only = LintOptions(select=(name,))
    assert lint_text(sections["Wrong"], f"{name}.md", only).diagnostics, "the wrong example is not reported"
    assert not lint_text(sections["Right"], f"{name}.md").diagnostics, "the right example is reported"


def test_every_page_belongs_to_a_rule() -> None:
    assert sorted(path.stem for path in DOCS.glob("*.md")) == sorted(NAMES)


def test_page_of_the_command_lists_every_rule() -> None:
    page = (DOCS.parent / "lint.md").read_text(encoding="utf-8")
    for rule in RULES:
        fix = "yes" if rule.is_fixable else ""
        assert f"| [`{rule.name}`](lint/{rule.name}.md) | {rule.title} | {fix} |" in page


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


def _sections(page: str) -> list[tuple[str, str]]:
    parts = page.split("\n## ")
    return [(title, body) for title, _, body in (part.partition("\n") for part in parts[1:])]
