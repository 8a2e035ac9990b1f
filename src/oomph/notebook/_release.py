"""What an out-of-memory error keeps alive in a notebook, and how it is freed.

IPython keeps the last exception for `%debug` and `%tb`: in `sys.last_value` and its siblings, in the formatter of
tracebacks and in the last result. Its traceback keeps the frames, and these keep every local variable: the
batch, the activations, the model that was being built.
"""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

from ..failures import FailureKind, Family, Finding, classify_exception, release_frames

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_LAST_ERROR = ("last_type", "last_value", "last_traceback", "last_exc")
# Their cause may be another one than memory, which a debugger finds.
_UNCERTAIN = {FailureKind.LIBRARY_ERROR, FailureKind.TOO_MANY_ELEMENTS}


def find_out_of_memory(error: BaseException | None) -> Finding | None:
    """Return the out-of-memory failure that an exception reports; None for every other exception."""
    finding = None if error is None else classify_exception(error)
    if finding is None or finding.kind in _UNCERTAIN or finding.cause.family not in {Family.DEVICE, Family.HOST}:
        return None
    return finding


def free_error(shell: InteractiveShell, error: BaseException) -> None:
    """Free what an exception keeps alive, and return cached blocks to the devices."""
    release_frames(error)
    if getattr(sys, "last_value", None) is error:
        for name in _LAST_ERROR:
            if hasattr(sys, name):
                delattr(sys, name)
    formatter: Any = shell.InteractiveTB
    formatter.tb = None
    if formatter.pdb is not None:
        vars(formatter.pdb).pop("curframe_locals", None)  # the variables that `%pdb` or `%debug` showed last
    gc.collect()
    if "torch" in sys.modules:
        from ..recovery import free_memory  # noqa: PLC0415  torch is imported already

        free_memory(collect=False)
