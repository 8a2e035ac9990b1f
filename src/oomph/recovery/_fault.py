"""Memory that ran short, told from everything else, and let go of.

An exception holds its traceback, the traceback its frames, and the frames the tensors that filled the memory: nothing
can be freed, let alone retried, before they are dropped. So an exception leaves this file only without its traceback,
of which the text is kept.
"""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..errors import OomphError
from ..failures import FailureKind, Finding, classify_exception

_RESTORES = 8  # faults in a row that putting things back survives


@dataclass(frozen=True)
class Fault:
    """Memory ran short.

    Attributes:
        finding: what was recognised.
        elsewhere: whether it happened on another rank.
        error: what was raised, without its traceback.
        trace: where it was raised.
    """

    finding: Finding | None
    elsewhere: bool = False
    error: BaseException | None = None
    trace: traceback.StackSummary | None = None

    @property
    def words(self) -> str:
        """What happened, in one line."""
        return "memory ran short on another rank" if self.finding is None else self.finding.evidence

    @property
    def kind(self) -> str:
        """The name of what happened."""
        return "another-rank" if self.finding is None else self.finding.kind.value

    @property
    def is_full(self) -> bool:
        """Whether all that was reserved and unused was less than what was asked for: there are no holes to close."""
        numbers = {} if self.finding is None else self.finding.numbers
        return {"requested", "unallocated"} <= numbers.keys() and numbers["unallocated"] < numbers["requested"]

    @property
    def is_doubtful(self) -> bool:
        """Whether it may be no memory at all: a library's failure for another reason, or a user's own MemoryError."""
        if self.finding is None:
            return False
        # Python's own has no words, and libraries have types of their own.
        own = (
            self.finding.kind is FailureKind.MEMORY_ERROR and type(self.error) is MemoryError and bool(self.error.args)
        )
        return own or self.finding.kind is FailureKind.LIBRARY_ERROR

    def original(self) -> BaseException | None:
        """What was raised, to be raised again or named as the cause; it tells in a note where it came from."""
        if self.error is not None and self.trace is not None and hasattr(self.error, "add_note"):
            self.error.add_note("It was raised here:\n" + "".join(self.trace.format()).rstrip())
        return self.error


def catch(work: Callable[[], object]) -> Fault | None:
    """Run something; what it says if memory ran short. Any other error passes through."""
    try:
        work()
    except Exception as error:
        finding = classify_exception(error)
        if finding is None or not finding.retryable:
            raise
        # The lines themselves are read from their files when they are shown.
        trace = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
        fault = Fault(finding, error=error, trace=trace)
        _let_go(error)
    else:
        return None
    return fault


def _let_go(error: BaseException) -> None:
    """Clear the frames of an exception and of those that it was raised from."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__]
        one.__traceback__ = None


def persist(work: Callable[[], object]) -> None:
    """Run something that must succeed and may be run again, freeing memory in between.

    Raises:
        OomphError: memory ran short each time.
    """
    words = ""
    for attempt in range(_RESTORES):
        fault = catch(work)
        if fault is None:
            return
        words = fault.words
        free(collect=attempt > 0)
    raise OomphError(f"the state before the step can't be put back ({words})", "resume from the last checkpoint")


def once(work: Callable[[], object]) -> Callable[[], None]:
    """Something that must not be done again once it was done, whoever asks."""
    waiting = [work]

    def run() -> None:
        if waiting:
            waiting[0]()
            waiting.clear()

    return run


def free(*, collect: bool = True) -> None:
    """Give cached blocks back to the device; before that, if asked, collect what only cycles hold, which is slow."""
    if collect:
        gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    elif "torch.mps" in sys.modules and torch.backends.mps.is_available():
        torch.mps.empty_cache()
    elif hasattr(torch, "xpu") and torch.xpu.is_available():
        torch.xpu.empty_cache()
