from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from oomph.report import emit
from oomph.report._table import table


@dataclass(frozen=True)
class Long:
    def document(self) -> dict[str, Any]:
        return {"oomph": "long", "ü": 1}

    def render(self, *, plain: bool) -> RenderableType:
        made = table("name", ">size", plain=plain)
        made.add_row("x" * 200, "1")
        return made


def test_a_pipe_gets_bare_columns_that_are_never_wrapped() -> None:
    out = io.StringIO()
    emit(Long(), as_json=False, stream=out)
    head, row = out.getvalue().splitlines()
    assert head.split() == ["name", "size"]
    assert row.split() == ["x" * 200, "1"]


def test_json_is_ascii_so_that_no_shell_can_break_it() -> None:
    out = io.StringIO()
    emit(Long(), as_json=True, stream=out)
    assert out.getvalue() == '{\n  "oomph": "long",\n  "\\u00fc": 1\n}\n'
