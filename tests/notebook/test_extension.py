"""The extension in a shell of this process: what it frees, what it keeps, what it prints."""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import pytest

import oomph
from oomph.notebook import _extension, load_ipython_extension, unload_ipython_extension
from oomph.notebook._memory_use import MemoryUse
from oomph.units import GIB, MIB

from .shells import is_freed

CUDA_OOM = "RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB')"
OOMS = ["MemoryError()", CUDA_OOM, "OSError(12, 'Cannot allocate memory')"]
OTHERS = ["ValueError('memory')", "RuntimeError('shapes differ')", "KeyboardInterrupt()", "SystemExit(1)"]


@pytest.fixture
def rss(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The RSS that the extension reads, one after the other; the last one stays."""
    sizes = [GIB]
    monkeypatch.setattr(_extension, "read_memory_use", lambda: MemoryUse(sizes.pop(0) if sizes[1:] else sizes[0], {}))
    return sizes


@pytest.mark.parametrize("error", OOMS)
def test_the_frames_of_an_out_of_memory_error_are_freed_after_its_traceback_was_shown(
    shell: Any, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell(f"fail({error})")
    assert is_freed(shell)
    assert not hasattr(sys, "last_traceback")
    shown, _, after = capsys.readouterr().out.partition("oomph: ")
    assert "Traceback (most recent call last)" in shown
    assert "Freed what its traceback kept alive: RAM" in after
    assert "%oomph explains more" in after


def test_without_the_extension_they_stay(plain_shell: Any) -> None:
    plain_shell.run_cell("fail(MemoryError())")
    assert not is_freed(plain_shell)


@pytest.mark.parametrize("error", OTHERS)
@pytest.mark.filterwarnings("ignore:To exit")
def test_other_errors_keep_their_frames_for_the_debugger(shell: Any, error: str) -> None:
    shell.run_cell(f"fail({error})")
    assert not is_freed(shell)
    assert sys.last_traceback is not None


def test_an_error_of_a_library_that_may_not_be_about_memory_can_be_debugged(shell: Any) -> None:
    shell.run_cell("fail(RuntimeError('cuDNN error: CUDNN_STATUS_INTERNAL_ERROR'))")
    assert not is_freed(shell)


def test_a_bug_while_an_out_of_memory_error_is_handled_can_be_debugged(shell: Any) -> None:
    shell.run_cell("try:\n    fail(MemoryError())\nexcept MemoryError:\n    undefined_name")
    assert not is_freed(shell)
    assert isinstance(sys.last_value, NameError)


def test_the_frames_of_its_cause_are_freed(shell: Any) -> None:
    shell.run_cell(
        "try:\n    fail(MemoryError())\nexcept MemoryError as error:\n    raise RuntimeError('x') from error"
    )
    assert is_freed(shell)


def test_a_stored_exception_keeps_nothing_alive(shell: Any) -> None:
    shell.run_cell("error = MemoryError()")
    shell.run_cell("fail(error)")
    assert is_freed(shell)
    assert type(shell.user_ns["error"]) is MemoryError


def test_variables_of_the_notebook_are_kept(shell: Any) -> None:
    shell.run_cell("kept = Big()\nfor number in range(3):\n    fail(MemoryError())")
    assert type(shell.user_ns["kept"]).__name__ == "Big"
    assert shell.user_ns["number"] == 0


def test_debug_after_an_out_of_memory_error_says_why_there_is_nothing(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell("fail(MemoryError())")
    capsys.readouterr()
    shell.run_cell("%debug")
    assert capsys.readouterr().out.startswith("oomph: There is nothing to debug: the last error was out of memory")


def test_debug_works_for_the_next_error(
    shell: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run_cell("fail(MemoryError())")
    shell.run_cell("value = 'visible'\nfail(ValueError())")
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.StringIO("p 'level', error\nq\n"))
    shell.run_cell("%debug")
    assert "('level', ValueError())" in capsys.readouterr().out


def test_what_the_debugger_of_pdb_showed_is_freed(
    shell: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run_line_magic("pdb", "on")
    monkeypatch.setattr(sys, "stdin", io.StringIO("p local\nq\n"))
    shell.run_cell("fail(MemoryError())")
    assert "Big object" in capsys.readouterr().out
    assert is_freed(shell)


def test_the_magic_explains_the_last_out_of_memory_error(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("%oomph")
    assert "No cell has run out of memory" in capsys.readouterr().out
    shell.run_cell(f"fail({CUDA_OOM})")
    capsys.readouterr()
    shell.run_cell("%oomph")
    explanation = capsys.readouterr().out
    assert "The GPU ran out of memory." in explanation
    assert "What to do" in explanation


def test_a_cell_that_leaves_memory_is_followed_by_one_line(
    shell: Any, rss: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    rss[:] = [GIB, 3 * GIB]
    shell.run_cell("data = bytearray(10**8)")
    assert capsys.readouterr().out == "oomph: RAM +2 GiB (3 GiB); largest new variables: data 95.4 MiB\n"


@pytest.mark.parametrize("change", [0, 63 * MIB, -63 * MIB])
def test_a_small_change_is_not_shown(
    shell: Any, rss: list[int], capsys: pytest.CaptureFixture[str], change: int
) -> None:
    rss[:] = [GIB, GIB + change]
    shell.run_cell("x = 1")
    assert capsys.readouterr().out == ""


def test_nested_cells_each_show_their_change(shell: Any, rss: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    rss[:] = [GIB, 2 * GIB, 3 * GIB, 4 * GIB]
    shell.user_ns["shell"] = shell
    shell.run_cell("shell.run_cell('x = 1')")
    lines = capsys.readouterr().out.splitlines()
    assert [line.removeprefix("oomph: ") for line in lines if "oomph" in line] == [
        "RAM +1 GiB (3 GiB)",
        "RAM +3 GiB (4 GiB)",
    ]


@pytest.mark.parametrize("cell", ["", "   ", "1 +", "%no_such_magic"])
@pytest.mark.filterwarnings("ignore")
def test_cells_that_do_not_run_are_no_problem(shell: Any, cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell(cell)
    assert "oomph" not in capsys.readouterr().out


def test_a_canceled_cell_has_no_result(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.events.trigger("post_run_cell", None)
    assert capsys.readouterr() == ("", "")


def test_a_cell_that_runs_in_a_thread(shell: Any) -> None:
    thread = threading.Thread(target=shell.run_cell, args=["fail(MemoryError())"])
    thread.start()
    thread.join()
    assert is_freed(shell)


def test_an_asynchronous_cell(shell: Any) -> None:
    shell.run_cell("import asyncio\nawait asyncio.sleep(0)\nfail(MemoryError())")
    assert is_freed(shell)


def test_loading_twice_prints_once(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    load_ipython_extension(shell)
    shell.run_cell("fail(MemoryError())")
    assert capsys.readouterr().out.count("Freed what") == 1


def test_unloading_leaves_the_shell_as_it_was(plain_shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    debugger, magics = plain_shell.debugger, set(plain_shell.magics_manager.magics["line"])
    callbacks = {event: list(functions) for event, functions in plain_shell.events.callbacks.items()}
    load_ipython_extension(plain_shell)
    unload_ipython_extension(plain_shell)
    unload_ipython_extension(plain_shell)
    assert plain_shell.debugger == debugger
    assert set(plain_shell.magics_manager.magics["line"]) == magics
    assert {event: list(functions) for event, functions in plain_shell.events.callbacks.items()} == callbacks
    plain_shell.run_cell("fail(MemoryError())")
    assert "oomph:" not in capsys.readouterr().out


def test_ipython_loads_and_reloads_it_by_the_name_of_the_package(
    plain_shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    plain_shell.run_line_magic("load_ext", "oomph")
    plain_shell.run_line_magic("reload_ext", "oomph")
    plain_shell.run_cell("fail(MemoryError())")
    assert capsys.readouterr().out.count("Freed what") == 1
    plain_shell.run_line_magic("unload_ext", "oomph")
    assert oomph.load_ipython_extension is load_ipython_extension
