"""The supervisor of foreign commands: runs, measures, limits and explains any program. Imports no torch.

The processes of sweeps are supervised on Windows, too; `run_command` needs a Unix system.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._processes import adopt_orphans, descendants
from ._request import CommandRequest, HostLimits, RunFiles, StopReason
from ._result import Attempt, RunResult
from .retry import RetryPolicy, parse_template

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Attempt",
    "CommandRequest",
    "HostLimits",
    "RetryPolicy",
    "RunFiles",
    "RunResult",
    "StopReason",
    "adopt_orphans",
    "descendants",
    "parse_template",
    "run_command",
]


def run_command(request: CommandRequest, tell: Callable[[str], None]) -> RunResult:
    """Run a command until it ends and is not started again.

    Args:
        request: The command, its limits and its files.
        tell: Called with sentences for the user while it runs.

    Raises:
        UsageError: The Record can't be written.
    """
    from ._run_command import CommandRun  # noqa: PLC0415  terminals and signals of Unix

    return CommandRun(request, tell).run()
