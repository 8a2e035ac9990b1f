"""What docs/guard.md shows can be run as it stands, and names every option."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from oomph.recovery import Options, StepReport

PAGE = (Path(__file__).parent.parent.parent / "docs" / "guard.md").read_text()


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/guard.md", "exec"), names)  # noqa: S102  our own page
    assert capsys.readouterr().out.splitlines()[-1] == "done"
    assert (tmp_path / "last.pt").exists()


@pytest.mark.parametrize("kind", [Options, StepReport])
def test_every_option_and_field_stands_on_the_page(kind: type[Any]) -> None:
    for field in dataclasses.fields(kind):
        assert f"`{field.name}" in PAGE or field.name == "updated", field.name
