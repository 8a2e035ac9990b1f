"""Errors of collectives: what they say when another rank is gone."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Callable, Iterator

import torch.distributed as dist

from ..errors import OomphError, RankLost, shorten
from ..failures import Family, classify_exception

NO_TIMEOUT = dt.timedelta(days=7)  # waiting for a slow rank is not an error; heartbeats and torchrun find dead ones
_MAX_REASON = 200


@contextlib.contextmanager
def rank_lost_errors(reason: Callable[[str], str] | None = None) -> Iterator[None]:
    """Turn an error of a collective into RankLost if it says that another rank is gone.

    Args:
        reason: returns the reason to report, given what torch says.
    """
    try:
        yield
    except RuntimeError as error:
        lost = as_rank_lost(error, reason)
        if lost is None:
            raise
        raise lost from error


def as_rank_lost(error: BaseException, reason: Callable[[str], str] | None = None) -> RankLost | None:
    """Return a RankLost error if an error says that another rank is gone, else None."""
    if isinstance(error, OomphError) or not is_rank_error(error):
        return None
    text = re.sub(r"^\[[^]]*\]\s*", "", str(error).strip())  # without torch's source file
    message = shorten(text.partition("\n")[0].partition(". ")[0], _MAX_REASON) or type(error).__name__
    why = f"another rank is gone ({message})" if reason is None else reason(message)
    return RankLost(why, "check the output of that rank, then resume")


def is_rank_error(error: BaseException) -> bool:
    """Return True if an error is about another rank, by its message or else by its type."""
    finding = classify_exception(error) if isinstance(error, Exception) else None
    return isinstance(error, dist.DistError) if finding is None else finding.cause.family is Family.RANKS
