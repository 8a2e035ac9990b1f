"""Catch out-of-memory errors, and let go of everything that they keep alive.

An exception holds its traceback, the traceback its frames, and the frames the tensors that filled the memory: nothing
can be freed or retried before those are dropped. So a caught error loses its traceback; where it was raised is kept as
text.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ..errors import OomphError
from ..failures import FailureKind, Finding, classify_exception, release_frames

DumpMemory = Callable[[], "Path | None"]
_MAX_ATTEMPTS = 8


@dataclass(frozen=True)
class CaughtOom:
    """An out-of-memory error that was caught and can be retried.

    Attributes:
        finding: the classified error; None if it happened on another rank.
        error: the exception, without its traceback.
        stack: where it was raised.
        snapshot: the file with the memory's history, if one was written.
    """

    finding: Finding | None
    error: BaseException | None = None
    stack: traceback.StackSummary | None = None
    snapshot: Path | None = None

    @property
    def is_remote(self) -> bool:
        """True if the error happened on another rank."""
        return self.finding is None

    @property
    def message(self) -> str:
        """The error in one line."""
        return "out of memory on another rank" if self.finding is None else self.finding.evidence

    @property
    def kind(self) -> str:
        """The name of the failure kind, for the Record."""
        return "another-rank" if self.finding is None else self.finding.kind.value

    @property
    def is_capacity(self) -> bool:
        """True if the allocator held too little unused memory for the request: fragmentation is not the reason."""
        numbers = {} if self.finding is None else self.finding.numbers
        return {"requested", "unallocated"} <= numbers.keys() and numbers["unallocated"] < numbers["requested"]

    @property
    def is_ambiguous(self) -> bool:
        """True if it may not be about memory: a library's catch-all error, or a MemoryError of the user's code."""
        if self.finding is None:
            return False
        # Python's own MemoryError has no text, and libraries raise subclasses.
        kind, error = self.finding.kind, self.error
        from_user = kind is FailureKind.MEMORY_ERROR and type(error) is MemoryError and bool(error.args)
        return from_user or kind is FailureKind.LIBRARY_ERROR

    def annotated_error(self) -> BaseException | None:
        """Return the exception with a note that says where it was raised."""
        if self.error is not None and self.stack is not None and hasattr(self.error, "add_note"):
            self.error.add_note("It was raised here:\n" + "".join(self.stack.format()).rstrip())
        return self.error


def caught_oom(error: BaseException, dump_memory: DumpMemory | None = None) -> CaughtOom | None:
    """Turn a retryable out-of-memory error into a CaughtOom; return None for any other error.

    Args:
        error: the error.
        dump_memory: writes the memory's history to a file; called while the error still keeps its tensors alive.
    """
    finding = classify_exception(error) if isinstance(error, Exception) else None
    if finding is None or not finding.retryable:
        return None
    # Source lines are looked up only when the stack is formatted.
    stack = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    snapshot = None if dump_memory is None else dump_memory()
    release_frames(error)
    return CaughtOom(finding, error, stack, snapshot)


def is_oom(error: Exception) -> bool:
    """Return True for an out-of-memory error that can be retried."""
    finding = classify_exception(error)
    return finding is not None and finding.retryable


def catch_oom(work: Callable[[], object]) -> CaughtOom | None:
    """Call a function and return the out-of-memory error that it raised, if any; other errors propagate."""
    try:
        work()
    except Exception as error:
        oom = caught_oom(error)
        if oom is None:
            raise
        return oom
    return None


def retry_on_oom(work: Callable[[], object]) -> None:
    """Call an idempotent function until it succeeds, freeing memory between attempts.

    Raises:
        OomphError: memory ran out every time.
    """
    message = ""
    for attempt in range(_MAX_ATTEMPTS):
        oom = catch_oom(work)
        if oom is None:
            return
        message = oom.message
        free_memory(collect=attempt > 0)
    raise OomphError(f"the step can't be completed or undone ({message})", "resume from the last checkpoint")


def free_memory(*, collect: bool = True) -> None:
    """Return cached blocks to the device.

    Args:
        collect: run the garbage collector first, which frees tensors in reference cycles and takes a while.
    """
    if collect:
        gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    elif "torch.mps" in sys.modules and torch.backends.mps.is_available():
        torch.mps.empty_cache()
    elif hasattr(torch, "xpu") and torch.xpu.is_available():
        torch.xpu.empty_cache()
