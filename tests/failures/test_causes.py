"""docs/failures.md contains the texts of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomph.failures import CAUSES, Cause

PAGE = (Path(__file__).parents[2] / "docs" / "failures.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda cause: cause.kind.value)
def test_page_has_every_kind_with_its_texts(cause: Cause) -> None:
    retry = "yes" if cause.retryable else ""
    assert f"| `{cause.kind.value}` | {cause.title} | {cause.why} | {retry} |" in ROWS


def test_page_has_no_other_kinds() -> None:
    assert len(ROWS) == len(CAUSES)


def test_titles_and_steps_have_a_common_form() -> None:
    for cause in CAUSES.values():
        assert not cause.title.endswith(".")
        for step in cause.fix:
            assert step[0].isupper() or step.startswith(("$ ", "PYTORCH_")), step
