"""The page of failures says what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomph.failures import CAUSES, Cause

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.kind.value)
def test_every_kind_stands_on_the_page_in_the_code_s_words(cause: Cause) -> None:
    retry = "yes" if cause.retryable else ""
    assert f"| `{cause.kind.value}` | {cause.title} | {cause.why} | {retry} |" in ROWS


def test_the_page_has_no_kind_that_the_code_has_not() -> None:
    assert len(ROWS) == len(CAUSES)


def test_words_end_as_sentences_and_commands_are_marked() -> None:
    for cause in CAUSES.values():
        assert not cause.title.endswith(".")
        for step in cause.fix:
            assert step[0].isupper() or step.startswith(("$ ", "oomph.", "torch.")), step
