"""Decide what a step does after it ran out of memory, and when larger micro-batches are tried again."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ._step_report import Fallback

_log = logging.getLogger("oomph")
_MAX_WAIT_STEPS = 1 << 14


class Backoff:
    """Counts quiet steps until the next try; each failed try doubles the wait.

    Args:
        steps: the initial wait.
    """

    def __init__(self, steps: int) -> None:
        self._initial = self.wait = steps
        self._quiet = 0

    @property
    def is_due_next(self) -> bool:
        """True if one more quiet step ends the wait."""
        return self._quiet + 1 >= self.wait

    def count(self) -> bool:
        """Count a quiet step; return True if the wait is over, and start the next one."""
        self._quiet += 1
        if self._quiet < self.wait:
            return False
        self._quiet = 0
        return True

    def interrupt(self) -> None:
        """Start counting quiet steps again."""
        self._quiet = 0

    def lengthen(self) -> None:
        """Double the wait after a failed try."""
        self._quiet, self.wait = 0, min(2 * self.wait, _MAX_WAIT_STEPS)

    def reset(self) -> None:
        """Return to the initial wait after a successful try."""
        self.wait = self._initial

    def state_dict(self) -> dict[str, int]:
        """Return the wait and the quiet steps so far."""
        return {"wait": self.wait, "quiet": self._quiet}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from a saved state."""
        self.wait, self._quiet = state["wait"], state["quiet"]


@dataclass(frozen=True)
class LastFallback:
    """A fallback for when micro-batches can't be smaller.

    Attributes:
        fallback: its description.
        apply: puts it into effect; returns False if it changed nothing.
        undo: takes it back.
    """

    fallback: Fallback
    apply: Callable[[], bool]
    undo: Callable[[], None]


class RetryPolicy:
    """The micro-batch size and the fallbacks in effect.

    After an out-of-memory error: free cached blocks, halve the micro-batch, collect garbage, then the last fallbacks.
    After enough quiet steps, a micro-batch twice as large is tried, then the last fallbacks are undone.

    Args:
        max_micro_batch: largest micro-batch; None for the whole batch.
        cooldown_steps: quiet steps before a larger micro-batch is tried.
        last_fallbacks: fallbacks for when micro-batches can't be smaller, cheapest first.
        frees_cache: freeing cached blocks alone may help, as it does on a GPU.
    """

    def __init__(
        self,
        *,
        max_micro_batch: int | None = None,
        cooldown_steps: int = 20,
        last_fallbacks: tuple[LastFallback, ...] = (),
        frees_cache: bool = False,
    ) -> None:
        self._max_micro_batch, self._last_fallbacks, self._frees_cache = max_micro_batch, last_fallbacks, frees_cache
        self.micro_batch: int | None = None  # largest micro-batch that fits; None: no limit found
        self._backoff = Backoff(cooldown_steps)
        self._applied = 0  # last fallbacks in effect
        self._size_before_probe: int | None = None  # the micro-batch before a larger one that is being tried
        self._has_freed = self._has_collected = False  # in this step
        self._largest_batch = 0  # samples of the largest batch since the first out-of-memory error
        self.is_idle = True  # nothing is in effect

    @property
    def wait_steps(self) -> int:
        """Quiet steps before the next try."""
        return self._backoff.wait

    @property
    def will_probe(self) -> bool:
        """True if the next step, when it succeeds, may be followed by a larger micro-batch."""
        return not self.is_idle and self._backoff.is_due_next and self._has_undoable

    @property
    def _has_undoable(self) -> bool:
        return self.micro_batch is not None or self._applied > 0

    def micro_batches(self, samples: int, min_size: int = 1) -> int:
        """Return the number of micro-batches for a batch, none of them below the smallest size."""
        size = min(self.micro_batch or samples, self._max_micro_batch or samples)
        return max(1, min(math.ceil(samples / size), samples // min_size))

    def next_fallback(
        self,
        samples: int,
        min_size: int = 1,
        predicted_to_fit: Callable[[int], bool] | None = None,
        *,
        may_be_fragmented: bool = True,
    ) -> Fallback | None:
        """Apply the next fallback after an out-of-memory error; return None if there is none left.

        Args:
            samples: samples of the batch.
            min_size: smallest micro-batch.
            predicted_to_fit: predicts whether a micro-batch of that size fits; None without a predictor.
            may_be_fragmented: freeing cached blocks may merge free memory into a block that is large enough.
        """
        self._backoff.interrupt()
        self.is_idle = False
        self._has_freed = self._has_freed or not may_be_fragmented
        fallback = self._choose(samples, min_size, predicted_to_fit)
        if fallback is not None:
            _log.warning("Out of memory; retrying: %s.", fallback)
        return fallback

    def _choose(self, samples: int, min_size: int, predicted_to_fit: Callable[[int], bool] | None) -> Fallback | None:
        if self._size_before_probe is not None:
            self.micro_batch, self._size_before_probe = self._size_before_probe, None
            self._backoff.lengthen()
            cost = f"larger ones are tried again in {self.wait_steps} steps"
            return Fallback("micro_batch", f"back to micro-batches of {self.micro_batch}", cost)
        if self._frees_cache and not self._has_freed:
            self._has_freed = True
            return Fallback("free_cache", "freed cached memory", "the step is repeated")
        count = self.micro_batches(samples, min_size)
        if count < samples // min_size:
            half = max(min_size, math.ceil(samples / (2 * count)))
            self.micro_batch = half if predicted_to_fit is None else _largest_fitting(half, min_size, predicted_to_fit)
            count = self.micro_batches(samples, min_size)
            detail = f"{count} micro-batches of up to {self.micro_batch} samples"
            return Fallback("micro_batch", detail, "smaller kernels")
        if not self._has_collected:  # a passing shortage must not end a run whose micro-batches can't be smaller
            self._has_collected = True
            return Fallback("collect_garbage", "ran garbage collection", "the step is repeated")
        return self._apply_last()

    def _apply_last(self) -> Fallback | None:
        while self._applied < len(self._last_fallbacks):
            last = self._last_fallbacks[self._applied]
            self._applied += 1
            if last.apply():
                return last.fallback
        return None

    def on_success(self, samples: int, fits: Callable[[int], bool]) -> None:
        """Count a step that succeeded, and try a larger micro-batch after enough of them.

        Args:
            samples: samples of the batch.
            fits: estimates whether a micro-batch of that size fits.
        """
        self._has_freed = self._has_collected = False
        if self._size_before_probe is not None:
            self._size_before_probe = None
            self._backoff.reset()
        if not self._has_undoable:
            self._largest_batch, self.is_idle = 0, True
            return
        self._largest_batch = max(self._largest_batch, samples)
        if not self._backoff.count():
            return
        if self.micro_batch is not None:
            self._grow(self.micro_batch, fits)
        else:
            self._undo_last()

    def _grow(self, size: int, fits: Callable[[int], bool]) -> None:
        larger = min(2 * size, self._largest_batch)
        if not fits(larger):
            return
        if size >= self._largest_batch:
            self.micro_batch = None
            self._backoff.reset()
            return
        _log.info("%d steps without an out-of-memory error: trying micro-batches of %d.", self.wait_steps, larger)
        self._size_before_probe, self.micro_batch = size, larger

    def _undo_last(self) -> None:
        last = self._last_fallbacks[self._applied - 1]
        last.undo()
        self._applied -= 1
        _log.info("%d steps without an out-of-memory error: no longer %s.", self.wait_steps, last.fallback.detail)
        self._backoff.lengthen()

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs to continue with the same micro-batch and fallbacks."""
        return {"micro_batch": self.micro_batch, "applied": self._applied, "backoff": self._backoff.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state."""
        self.micro_batch = state["micro_batch"]
        self._backoff.load_state_dict(state["backoff"])
        while self._applied < min(state["applied"], len(self._last_fallbacks)):
            self._apply_last()
        self.is_idle = not self._has_undoable


def _largest_fitting(size: int, min_size: int, predicted_to_fit: Callable[[int], bool]) -> int:
    """Halve a size until it is predicted to fit; return the size itself if none is."""
    smaller = size
    while not predicted_to_fit(smaller):
        if smaller <= min_size:
            return size
        smaller = max(min_size, smaller // 2)
    return smaller
