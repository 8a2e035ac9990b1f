"""Train PyTorch models without running out of memory.

Importing this package costs milliseconds, imports no torch, prints nothing and changes nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it would double the time
if TYPE_CHECKING:
    from .errors import AmbiguousName as AmbiguousName
    from .errors import BadDocument as BadDocument
    from .errors import BadSize as BadSize
    from .errors import CannotFit as CannotFit
    from .errors import MissingFile as MissingFile
    from .errors import OomphError as OomphError
    from .errors import OutOfRungs as OutOfRungs
    from .errors import RankLost as RankLost
    from .errors import UnknownName as UnknownName
    from .errors import WrongCall as WrongCall
    from .job import Job as Job
    from .ledger import Prediction as Prediction
    from .ledger import Range as Range
    from .ledger import predict as predict
    from .machine import Target as Target
    from .monitor import Explanation as Explanation
    from .monitor import Record as Record
    from .monitor import explain as explain
    from .monitor import watch as watch
    from .runner import StepReport as StepReport
    from .runner import Sum as Sum
    from .runner import Transaction as Transaction
    from .runner import guard as guard
    from .runner import split as split
    from .settings import Settings as Settings

_HOME = {
    "AmbiguousName": "errors",
    "BadDocument": "errors",
    "BadSize": "errors",
    "CannotFit": "errors",
    "Explanation": "monitor",
    "Job": "job",
    "MissingFile": "errors",
    "OomphError": "errors",
    "OutOfRungs": "errors",
    "Prediction": "ledger",
    "Range": "ledger",
    "RankLost": "errors",
    "Record": "monitor",
    "Settings": "settings",
    "StepReport": "runner",
    "Sum": "runner",
    "Target": "machine",
    "Transaction": "runner",
    "UnknownName": "errors",
    "WrongCall": "errors",
    "explain": "monitor",
    "guard": "runner",
    "predict": "ledger",
    "split": "runner",
    "watch": "monitor",
}

_PACKAGES = ("data",)  # public subpackages, used as oomph.data without an import of their own

__all__ = [
    "AmbiguousName",
    "BadDocument",
    "BadSize",
    "CannotFit",
    "Explanation",
    "Job",
    "MissingFile",
    "OomphError",
    "OutOfRungs",
    "Prediction",
    "Range",
    "RankLost",
    "Record",
    "Settings",
    "StepReport",
    "Sum",
    "Target",
    "Transaction",
    "UnknownName",
    "WrongCall",
    "__version__",
    "explain",
    "guard",
    "predict",
    "split",
    "watch",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use, so that `import oomph` stays free."""
    home = _HOME.get(name)
    if home is None and name not in _PACKAGES:
        raise AttributeError(f"module 'oomph' has no attribute {name!r}")
    import importlib  # noqa: PLC0415  here, because even this import is not free

    if home is None:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
