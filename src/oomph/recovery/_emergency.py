"""Out-of-memory errors of a run: recorded, and when no fallback is left the end of the run with its checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from ..monitor import Recorder
from ._caught_oom import CaughtOom
from ._step_report import retries_exhausted
from .ranks import Ranks

_log = logging.getLogger("oomph")


class Emergency:
    """Records out-of-memory errors, saves a run and ends it.

    Args:
        ranks: the ranks of the run.
        recorder: writes the Record, if there is one.
        save: saves the run and returns where; None if there is nowhere to save.
    """

    def __init__(self, ranks: Ranks, recorder: Recorder | None, save: Callable[[], str | None]) -> None:
        self._ranks, self._recorder, self._save = ranks, recorder, save

    def record(self, oom: CaughtOom, micro_batches: int, step: int) -> None:
        """Record an out-of-memory error of this rank."""
        if oom.is_remote:
            return
        _log.debug("step %d: %s", step, oom.message)
        if self._recorder is not None:
            file = {} if oom.snapshot is None else {"snapshot": str(oom.snapshot)}
            self._recorder.event("oom", kind=oom.kind, micro_batches=micro_batches, step=step, **file)

    def save(self, *, together: bool = False) -> str | None:
        """Save the run on the first rank, and return where; the others wait if all end together."""
        return self._ranks.save_last(self._save, together=together)

    def end(
        self, oom: CaughtOom, notes: Sequence[str] = (), *, together: bool = False, partly_updated: bool = False
    ) -> NoReturn:
        """Save the run and raise the error that ends it.

        Args:
            oom: the last out-of-memory error.
            notes: which fallbacks were not possible, and why.
            together: all ranks end.
            partly_updated: weights without a backup may have been updated, so that nothing is saved.
        """
        path = None if partly_updated else self.save(together=together)
        error = oom.annotated_error()
        if oom.is_ambiguous and error is not None:
            raise error
        raise retries_exhausted(oom, path, notes, partly_updated=partly_updated) from error
