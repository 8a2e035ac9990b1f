"""The examples of docs/guard.md run unchanged, and it names every option and every field of the report."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import oomph

PAGE = (Path(__file__).parent.parent.parent / "docs" / "guard.md").read_text()


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/guard.md", "exec"), names)  # noqa: S102  our own page


@pytest.mark.parametrize("option", sorted(inspect.signature(oomph.guard).parameters))
def test_every_option_is_documented(option: str) -> None:
    assert re.search(rf"`{option}\b|\b{option}=", PAGE), option


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(oomph.StepReport)])
def test_every_field_of_the_report_is_documented(field: str) -> None:
    assert re.search(rf"`(report\.)?{field}\b", PAGE), field
