"""A shell of IPython in this process, and functions that run out of memory in it."""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

LAST_ERROR = ("last_type", "last_value", "last_traceback", "last_exc")
# `fail(error)` raises an exception; `ref` refers to an object that a frame of its traceback holds.
DEFINITIONS = """
import weakref
class Big: pass
def fail(error):
    global ref
    local = Big()
    ref = weakref.ref(local)
    raise error
"""


def new_shell() -> Any:
    """A shell without history, with the definitions of `fail` and `ref`."""
    config = Config()
    config.HistoryManager.enabled = False
    shell_class: Any = InteractiveShell
    shell = shell_class(config=config)
    shell.run_cell(DEFINITIONS)
    return shell


def is_freed(shell: Any) -> bool:
    """True if the object in the frame that failed is gone."""
    return shell.user_ns["ref"]() is None


def forget_last_error() -> None:
    """Remove the last error of the interpreter, as after a start."""
    for name in LAST_ERROR:
        if hasattr(sys, name):
            delattr(sys, name)
