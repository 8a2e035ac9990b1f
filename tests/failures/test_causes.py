"""docs/failures.md contains the texts of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomph.failures import CAUSES, Cause, FailureKind
from oomph.lint import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
MYTHS = (Path(__file__).parents[2] / "docs" / "myths.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.kind.value)
def test_page_has_every_kind_with_its_texts(cause: Cause) -> None:
    retry = "yes" if cause.retryable else ""
    assert f"| `{cause.kind.value}` | {cause.title} | {cause.why} | {retry} |" in ROWS


def test_page_has_no_other_kinds() -> None:
    assert len(ROWS) == len(CAUSES)


def test_titles_and_advice_have_a_common_form() -> None:
    for cause in CAUSES.values():
        assert not cause.title.endswith(".")
        assert not cause.likely_title.endswith(".")
        assert 1 <= len(cause.advice) <= 3
        for advice in cause.advice:
            assert advice.text[0].isupper(), advice
            assert advice.text.endswith((".", ":")), advice


def test_causes_that_are_not_sure_say_so() -> None:
    for cause in CAUSES.values():
        words = f"{cause.likely_title} {cause.title}"
        assert cause.is_sure or any(word in words for word in ("likely", "probably", "almost certainly")), cause.kind


@pytest.mark.parametrize(
    ("kind", "is_memory"),
    [
        (FailureKind.OPEN_FILES, False),
        (FailureKind.RANK_TIMEOUT, False),
        (FailureKind.NCCL_ERROR, False),
        (FailureKind.THREAD_LIMIT, False),
        (FailureKind.DISK_FULL, False),
        (FailureKind.DISK_QUOTA, False),
        (FailureKind.SHM_FULL, True),
        (FailureKind.COMMIT_LIMIT, True),
    ],
)
def test_limits_of_other_resources_are_not_memory(kind: FailureKind, is_memory: bool) -> None:  # noqa: FBT001
    assert CAUSES[kind].is_memory is is_memory


def test_myths_are_sections_of_the_page() -> None:
    headings = {line.removeprefix("## ") for line in MYTHS.splitlines() if line.startswith("## ")}
    assert {cause.myth for cause in CAUSES.values() if cause.myth} <= headings


def test_rules_of_the_linter_that_causes_name_exist() -> None:
    names = {rule.name for rule in RULES}
    named = {name for cause in CAUSES.values() for name in cause.lint_rules}
    assert named
    assert named <= names
