"""Train PyTorch models without running out of memory.

Importing this package costs milliseconds, imports no torch, prints nothing and changes nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers take it for true; importing typing for it would double the time
if TYPE_CHECKING:
    from .errors import AmbiguousName as AmbiguousName
    from .errors import CannotFit as CannotFit
    from .errors import InvalidFile as InvalidFile
    from .errors import InvalidSize as InvalidSize
    from .errors import MissingFile as MissingFile
    from .errors import OomphError as OomphError
    from .errors import RankLost as RankLost
    from .errors import RetriesExhausted as RetriesExhausted
    from .errors import UnknownName as UnknownName
    from .errors import UsageError as UsageError
    from .job import Job as Job
    from .machine import Target as Target
    from .monitor import Explanation as Explanation
    from .monitor import Record as Record
    from .monitor import Recorder as Recorder
    from .monitor import explain as explain
    from .monitor import watch as watch
    from .notebook import load_ipython_extension as load_ipython_extension
    from .notebook import unload_ipython_extension as unload_ipython_extension
    from .planner import Plan as Plan
    from .planner import plan as plan
    from .prediction import Estimate as Estimate
    from .prediction import Prediction as Prediction
    from .prediction import predict as predict
    from .recovery import LossSum as LossSum
    from .recovery import StepReport as StepReport
    from .recovery import Transaction as Transaction
    from .recovery import guard as guard
    from .recovery import split_batch as split_batch
    from .settings import Settings as Settings
    from .sweeps import sweep as sweep

_HOME = {
    "AmbiguousName": "errors",
    "InvalidFile": "errors",
    "InvalidSize": "errors",
    "CannotFit": "errors",
    "Explanation": "monitor",
    "Job": "job",
    "MissingFile": "errors",
    "OomphError": "errors",
    "RetriesExhausted": "errors",
    "Plan": "planner",
    "Prediction": "prediction",
    "Estimate": "prediction",
    "RankLost": "errors",
    "Record": "monitor",
    "Recorder": "monitor",
    "Settings": "settings",
    "StepReport": "recovery",
    "LossSum": "recovery",
    "Target": "machine",
    "Transaction": "recovery",
    "UnknownName": "errors",
    "UsageError": "errors",
    "explain": "monitor",
    "guard": "recovery",
    "load_ipython_extension": "notebook",
    "plan": "planner",
    "predict": "prediction",
    "split_batch": "recovery",
    "sweep": "sweeps",
    "unload_ipython_extension": "notebook",
    "watch": "monitor",
}

_PACKAGES = ("data",)  # public subpackages, used as oomph.data without an import of their own

__all__ = [
    "AmbiguousName",
    "CannotFit",
    "Estimate",
    "Explanation",
    "InvalidFile",
    "InvalidSize",
    "Job",
    "LossSum",
    "MissingFile",
    "OomphError",
    "Plan",
    "Prediction",
    "RankLost",
    "Record",
    "Recorder",
    "RetriesExhausted",
    "Settings",
    "StepReport",
    "Target",
    "Transaction",
    "UnknownName",
    "UsageError",
    "__version__",
    "explain",
    "guard",
    "load_ipython_extension",
    "plan",
    "predict",
    "split_batch",
    "sweep",
    "unload_ipython_extension",
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
