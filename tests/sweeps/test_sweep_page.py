"""The Python example of docs/sweep.md runs unchanged, and the page names every argument and field."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import oomph
from oomph.sweeps import Status, SweepResult

REPO = Path(__file__).parent.parent.parent
PAGE = (REPO / "docs" / "sweep.md").read_text()


@pytest.mark.large
def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "examples").symlink_to(REPO / "examples")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(block, "docs/sweep.md", "exec"), names)  # noqa: S102  our own page
    result: SweepResult = names["result"]
    assert [row.status for row in result.results] == [Status.DONE] * 4
    assert min(row.metrics["accuracy"] for row in result.results if dict(row.cell.values)["size"] == 48) > 0.8
    assert max(row.metrics["accuracy"] for row in result.results if dict(row.cell.values)["size"] == 24) < 0.7
    assert "has the best accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("argument", sorted(inspect.signature(oomph.sweep).parameters))
def test_every_argument_is_documented(argument: str) -> None:
    assert re.search(rf"^\|.*`{argument}`.*\|", PAGE, re.MULTILINE), argument


def test_every_attribute_of_the_result_is_documented() -> None:
    fields = {field.name for field in dataclasses.fields(SweepResult)}
    properties = {name for name in vars(SweepResult) if not name.startswith("_")}
    for name in fields | properties:
        assert f"`{name}`" in PAGE, name
