"""Notebooks: whether this process writes into one."""

from __future__ import annotations

import os

# Jupyter sets one of them for the process of a kernel, which `!command` passes on.
_KERNEL_VARIABLES = ("JPY_PARENT_PID", "JPY_INTERRUPT_EVENT")
# What ipykernel sets for `!command`, however the kernel was started.
_KERNEL_SETTINGS = {"TERM": "xterm-color", "CLICOLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat"}


def in_notebook() -> bool:
    """Return True in the kernel of a notebook and in a command that it runs.

    Such a command writes to a pseudo-terminal, but a notebook keeps every redrawn line as more output.
    """
    if any(name in os.environ for name in _KERNEL_VARIABLES):
        return True
    return all(os.environ.get(name) == value for name, value in _KERNEL_SETTINGS.items())
