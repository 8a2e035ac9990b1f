"""Errors of a trace in one sentence: the user's mistakes, and operations that can't be traced."""

from __future__ import annotations

from collections.abc import Iterator

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    MetadataMismatchError,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

from ..errors import UsageError, describe
from .fake import failing_line

_OUR_TYPES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    MetadataMismatchError,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
_OUR_WORDS = (
    "FakeTensor",
    "fake tensor",
    "meta tensor",
    "Meta",
    "data_ptr",
    "subclass",
    "fake impl",
    "shape_env",
    "not linked with support",
)


def explain(error: BaseException, why: str, fix: str) -> UsageError:
    """Return the error to raise for an exception of the user's code.

    Args:
        error: the exception.
        why: the sentence for a mistake in the user's code.
        fix: what to do about such a mistake.
    """
    line = failing_line(error.__traceback__)
    at = f" at {line}" if line else ""
    if not is_ours(error):
        return UsageError(why + at, fix)
    operation = next((str(cause.func) for cause in _causes(error) if hasattr(cause, "func")), describe(error, 200))
    return limit(f"the code{at}: {operation}")


def limit(what: str) -> UsageError:
    """Return the error for code that oomph can't trace."""
    return UsageError(
        f"oomph can't trace {what} (a limit of ours)",
        "leave this code out of the Job's functions, or run `oomph predict --measure` on a machine with the GPU",
    )


def is_ours(error: BaseException) -> bool:
    """Return True if an exception comes from tracing on fake tensors; the code may be right on real ones."""
    return any(
        isinstance(cause, _OUR_TYPES) or any(word in str(cause) for word in _OUR_WORDS) for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
