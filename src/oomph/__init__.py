"""Train PyTorch models without running out of memory.

Importing this package costs milliseconds, imports no torch, prints nothing and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .errors import (
        AmbiguousName as AmbiguousName,
        BadDocument as BadDocument,
        BadSize as BadSize,
        CannotFit as CannotFit,
        MissingFile as MissingFile,
        OomphError as OomphError,
        UnknownName as UnknownName,
        WrongCall as WrongCall,
    )

_HOME = {
    "AmbiguousName": "errors",
    "BadDocument": "errors",
    "BadSize": "errors",
    "CannotFit": "errors",
    "MissingFile": "errors",
    "OomphError": "errors",
    "UnknownName": "errors",
    "WrongCall": "errors",
}

__all__ = [
    "AmbiguousName",
    "BadDocument",
    "BadSize",
    "CannotFit",
    "MissingFile",
    "OomphError",
    "UnknownName",
    "WrongCall",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that `import oomph` stays free."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'oomph' has no attribute {name!r}")
    import importlib  # noqa: PLC0415  here, because even this import is not free

    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
