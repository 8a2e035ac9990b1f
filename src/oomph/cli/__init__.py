"""The command line: one file per command, and one place that turns typed errors into exit codes."""

from ._main import main, run

__all__ = ["main", "run"]
