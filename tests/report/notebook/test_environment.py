from __future__ import annotations

import io
import sys

import pytest

from oomph.report import ConsoleProgress, SweepProgress, in_notebook

SETTINGS = {"TERM": "xterm-color", "CLICOLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat"}


@pytest.fixture(autouse=True)
def shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a shell."""
    for name in ("JPY_PARENT_PID", "JPY_INTERRUPT_EVENT", *SETTINGS):
        monkeypatch.delenv(name, raising=False)


def test_a_shell_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not in_notebook()
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setenv("TERM", "xterm-color")
    assert not in_notebook()


@pytest.mark.parametrize("name", ["JPY_PARENT_PID", "JPY_INTERRUPT_EVENT"])
def test_a_kernel_of_jupyter(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "42")
    assert in_notebook()


def test_a_kernel_that_something_else_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    assert in_notebook()


@pytest.mark.parametrize("notebook", [False, True])
def test_bars_are_drawn_on_a_terminal_but_not_in_a_notebook(monkeypatch: pytest.MonkeyPatch, *, notebook: bool) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", out := Terminal())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    if notebook:
        monkeypatch.setenv("JPY_PARENT_PID", "42")
    with ConsoleProgress() as progress:
        for done in range(100):
            progress.on_progress("reading", done, 100)
        progress.log("a message")
    with SweepProgress(3) as sweep:
        sweep.log("another message")
    text = out.getvalue()
    assert ("reading" in text) == ("cells" in text) == (not notebook)
    assert "a message\n" in text
    assert "another message\n" in text
    if notebook:
        assert text == "a message\nanother message\n"
