from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import RenderableType

from oomph.machine import Severity, Verdict, load_machine
from oomph.report import DoctorReport, emit
from oomph.report._table import table


@dataclass(frozen=True)
class LongReport:
    def document(self) -> dict[str, Any]:
        return {"oomph": "long", "ü": 1}

    def render(self, *, plain: bool) -> RenderableType:
        rows = table("name", ">size", plain=plain)
        rows.add_row("x" * 3000, "1")
        return rows


def test_pipe_gets_plain_columns_without_wrapping() -> None:
    out = io.StringIO()
    emit(LongReport(), as_json=False, stream=out)
    head, row = out.getvalue().splitlines()
    assert head.split() == ["name", "size"]
    assert row.split() == ["x" * 3000, "1"]


def test_json_is_ascii() -> None:
    out = io.StringIO()
    emit(LongReport(), as_json=True, stream=out)
    assert out.getvalue() == '{\n  "oomph": "long",\n  "\\u00fc": 1\n}\n'


@dataclass(frozen=True)
class NamesReport:
    names: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        return {}

    def render(self, *, plain: bool) -> RenderableType:
        rows = table("name", plain=plain)
        for name in self.names:
            rows.add_row(name)
        return rows


def test_names_in_brackets_or_colons_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    names = ("[bold]x", "closing[/nothing]", ":fire:")
    for out in (Terminal(), io.StringIO()):
        emit(NamesReport(names), as_json=False, stream=out)
        assert all(name in out.getvalue() for name in names)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_commands_are_never_cut_or_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    command = "$ du " + "a" * 100 + " b" * 100
    verdict = Verdict(Severity.NOTE, "long", "what " * 30, "why " * 30, (command,))
    machine = load_machine(Path(__file__).parents[2] / "examples" / "machines" / "container.json")
    for out in (Terminal(), io.StringIO()):
        emit(DoctorReport(machine, (verdict,)), as_json=False, stream=out)
        assert f"    {command}" in re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert "    " + ("why " * 30).strip() in out.getvalue().splitlines()
