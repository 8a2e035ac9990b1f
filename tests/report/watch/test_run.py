from __future__ import annotations

import subprocess
import sys

import pytest

from oomph.report import can_show_screen


class Stream:
    def __init__(self, *, terminal: bool = True, encoding: str = "utf-8") -> None:
        self.terminal, self.encoding = terminal, encoding

    def isatty(self) -> bool:
        return self.terminal


def shows_screen(
    monkeypatch: pytest.MonkeyPatch, streams: dict[str, object] | None = None, *, term: str = "xterm-256color"
) -> bool:
    """Return the answer on a terminal with some of its streams replaced."""
    terminal = {"__stdin__": Stream(), "__stdout__": Stream(), "__stderr__": Stream()}
    replaced = {**terminal, **(streams or {})}
    with monkeypatch.context() as patch:
        for name, stream in {"stdout": replaced["__stdout__"], **replaced}.items():
            patch.setattr(sys, name, stream)
        patch.setenv("TERM", term)
        return can_show_screen()


def test_a_terminal_gets_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shows_screen(monkeypatch)


@pytest.mark.parametrize("name", ["__stdin__", "__stdout__", "__stderr__"])
@pytest.mark.parametrize("stream", [Stream(terminal=False), None])
def test_a_redirected_stream_gets_lines(monkeypatch: pytest.MonkeyPatch, name: str, stream: Stream | None) -> None:
    assert not shows_screen(monkeypatch, {name: stream})


def test_a_notebook_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not shows_screen(monkeypatch, {"stdout": Stream()})  # a kernel replaces it


@pytest.mark.parametrize("name", ["dumb", "Dumb", "unknown"])
def test_a_terminal_without_a_cursor_gets_lines(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert not shows_screen(monkeypatch, term=name)


def test_a_terminal_that_is_not_unicode_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not shows_screen(monkeypatch, {"__stderr__": Stream(encoding="iso-8859-1")})


@pytest.mark.medium
def test_reports_import_no_textual() -> None:
    code = "import sys; import oomph.report, oomph.cli; assert 'textual' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
