"""`%load_ext oomph`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..failures import Finding
from ..monitor import Explanation
from ._memory_use import MemoryUse, format_use, freed_sizes, notable_changes, read_memory_use
from ._release import find_out_of_memory, free_error
from ._variables import HeldMemory, grown_variables, largest_variables, measure_variables

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

_NOTHING_TO_DEBUG = (
    "There is nothing to debug: the last error was out of memory, and its local variables were freed. "
    "To debug it, run %unload_ext oomph, then the cell again."
)


class MemoryExtension:
    """Shows memory after cells of a shell, and frees what out-of-memory errors keep alive.

    Args:
        shell: the shell of a notebook or terminal.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell: Any = shell  # its magics and debugger have no usable types
        self._debugger: Callable[[bool], None] = self._shell.debugger
        self._before: dict[int, MemoryUse] = {}  # by cell: cells may be nested, or run in threads
        self._variables = self._measure_variables()
        self._last_oom: Finding | None = None

    def install(self) -> None:
        """Register the callbacks, the magic and the debugger."""
        shell = self._shell
        shell.events.register("pre_run_cell", self._before_cell)
        shell.events.register("post_run_cell", self._after_cell)
        shell.register_magic_function(self._magic, "line", "oomph")
        shell.debugger = self._debug

    def remove(self) -> None:
        """Leave the shell as it was."""
        shell = self._shell
        shell.events.unregister("pre_run_cell", self._before_cell)
        shell.events.unregister("post_run_cell", self._after_cell)
        shell.magics_manager.magics["line"].pop("oomph", None)
        shell.debugger = self._debugger

    def _before_cell(self, info: ExecutionInfo) -> None:
        self._before[id(info)] = read_memory_use()

    def _after_cell(self, result: ExecutionResult | None) -> None:
        if result is None:  # the cell was canceled
            return
        before = self._before.pop(id(result.info), None)
        error = result.error_before_exec if result.error_in_exec is None else result.error_in_exec
        oom = find_out_of_memory(error)
        if error is not None and oom is not None:
            self._free(error, oom)
        elif before is not None:
            self._show_change(before)

    def _show_change(self, before: MemoryUse) -> None:
        changes = notable_changes(before, read_memory_use())
        if not changes:
            return
        variables = self._measure_variables()
        names = grown_variables(self._variables, variables)
        self._variables = variables
        _write(", ".join(changes) + (f"; largest new variables: {names}" if names else ""))

    def _free(self, error: BaseException, oom: Finding) -> None:
        """Free what an out-of-memory error keeps alive, and explain it in three lines."""
        before = read_memory_use()
        free_error(self._shell, error)
        freed = freed_sizes(before, read_memory_use())
        self._last_oom = oom
        self._variables = self._measure_variables()
        names = largest_variables(self._variables)
        _write(" ".join([f"{oom.title}.", *oom.details]))
        _write(f"Freed what its traceback kept alive: {freed}." + (f" Variables still hold: {names}." if names else ""))
        _write(f"{' '.join(oom.advice[0].lines)} %oomph explains more.")

    def _measure_variables(self) -> dict[str, HeldMemory]:
        hidden = self._shell.user_ns_hidden  # defined by IPython, not by the user
        return measure_variables(self._shell.user_ns, skip=hidden)

    def _debug(self, force: bool = False) -> None:  # noqa: FBT001, FBT002  IPython's signature
        if self._last_oom is not None and not hasattr(sys, "last_traceback"):
            _write(_NOTHING_TO_DEBUG)
        else:
            self._debugger(force)

    def _magic(self, line: str) -> None:
        """Explain the last out-of-memory error, and show which variables hold memory."""
        from ..report import ExplainReport, emit  # noqa: PLC0415  rich is imported only when it is needed

        del line
        names = largest_variables(self._measure_variables())
        _write(format_use(read_memory_use()) + (f"; largest variables: {names}" if names else ""))
        if self._last_oom is None:
            _write("No cell has run out of memory since the extension was loaded.")
        else:
            emit(ExplainReport(Explanation("log", (self._last_oom,))), as_json=False)


_extensions: dict[InteractiveShell, MemoryExtension] = {}


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Install the extension; IPython calls it for `%load_ext oomph`."""
    unload_ipython_extension(ipython)
    _extensions[ipython] = MemoryExtension(ipython)
    _extensions[ipython].install()


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Remove the extension; IPython calls it for `%unload_ext oomph`."""
    extension = _extensions.pop(ipython, None)
    if extension is not None:
        extension.remove()


def _write(text: str) -> None:
    sys.stdout.write(f"oomph: {text}\n")
    sys.stdout.flush()
