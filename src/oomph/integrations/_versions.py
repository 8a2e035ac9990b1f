"""Versions of frameworks. No framework."""

from __future__ import annotations

import re

from ..errors import UsageError


def check_version(package: str, installed: str, oldest: str) -> None:
    """Check that a framework is new enough; newer versions than the tested ones are allowed.

    Args:
        package: name of the package.
        installed: its `__version__`.
        oldest: the oldest supported version.

    Raises:
        UsageError: the version is older.
    """
    if _release(installed) < _release(oldest):
        raise UsageError(
            f"{package} {installed} is installed, and oomph needs {oldest} or newer",
            f"run `pip install -U '{package}>={oldest}'`",
        )


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without what follows: (5, 22, 2) of "5.22.2.dev0"."""
    numbers = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else ()
