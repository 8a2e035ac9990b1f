"""The example of docs/batches.md prints what it says, and every format is documented."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oomph.batch import FORMAT_NAMES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "batches.md").read_text()


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(block, "docs/batches.md", "exec"), names)  # noqa: S102  our own page
    (expected,) = re.findall(r"# (tensor.*)", block)
    assert capsys.readouterr().out.strip() == expected


@pytest.mark.parametrize("name", FORMAT_NAMES)
def test_every_format_is_documented(name: str) -> None:
    assert f'| `split="{name}"` |' in PAGE
