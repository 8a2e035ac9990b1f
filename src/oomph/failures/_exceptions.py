"""Classification of exceptions: which ones mean that memory ran out. A user's own exception never does."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from ._findings import finding_in_text
from ._frames import group_members
from ._kinds import FailureKind, Family, Finding
from .causes import CAUSES
from .rules import LAST_RESORT_RULES, RULES

# Libraries whose exceptions may wrap another exception without `raise … from …`.
_WRAPPING_LIBRARIES = {"torch", "lightning", "lightning_fabric", "pytorch_lightning", "accelerate", "deepspeed"}
# Libraries with their own exception types for running out of memory.
_LIBRARIES = _WRAPPING_LIBRARIES | {
    "cupy",
    "jaxlib",
    "jax",
    "tensorflow",
    "numpy",
    "cv2",
    "ray",
    "onnxruntime",
    "joblib",
    "safetensors",
}
_WINERROR_COMMIT = 1455
_MAX_CHAIN = 20  # chained exceptions that are followed
# Texts of the kernel, a scheduler or a notebook; an exception can't have them as its own message.
_SYSTEM_KINDS = {FailureKind.OOM_KILL, FailureKind.SCHEDULER_KILL, FailureKind.NOTEBOOK_DIED}
_EXCEPTION_LINE = re.compile(r"[\w.]*(?:Error|Exception)\b")
_NOT_REPORTED = {Family.OTHER, Family.NUMERICS}
# General wordings could be a user's own, so they count in logs only.
_RULES = tuple(
    rule
    for rule in RULES
    if CAUSES[rule.kind].family is not Family.NUMERICS
    and rule.kind not in _SYSTEM_KINDS
    and rule not in LAST_RESORT_RULES
)


def classify_exception(error: BaseException) -> Finding | None:
    """Return the failure of memory, workers or ranks that an exception reports, or None if it is about something else.

    Follows `raise … from …`. An exception that was raised while another one was handled is followed only if torch or a
    training library raised it: a bug in a user's `except` block is not an out-of-memory error.
    """
    findings = [finding for link in _chain(error) if (finding := _classify(link)) is not None]
    # "A worker exited" is raised from the error that says what killed it.
    specific = (finding for finding in findings if finding.kind is not FailureKind.WORKER_EXITED)
    return next(specific, findings[0] if findings else None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    queue = [error]
    while queue and len(seen) < _MAX_CHAIN:
        link = queue.pop(0)
        if any(link is other for other in seen):
            continue
        seen.append(link)
        yield link
        queue.extend(group_members(link))
        if link.__cause__ is not None:
            queue.append(link.__cause__)
        elif _wraps_its_context(link) and link.__context__ is not None:
            queue.append(link.__context__)


def _wraps_its_context(error: BaseException) -> bool:
    return not error.__suppress_context__ and _library(type(error)) in _WRAPPING_LIBRARIES


def _library(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _classify(error: BaseException) -> Finding | None:
    text = f"{type(error).__name__}: {_message(error)}"
    if isinstance(error, OSError):
        return _classify_os_error(error, text)
    kind = _kind_of_text(error, text)
    if kind is None:
        kind = _kind_of_type(error)
    return (
        None if kind is None or CAUSES[kind].family in _NOT_REPORTED else finding_in_text(kind, _first_line(text), text)
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  a user's own __str__ may fail
        return ""


def _kind_of_type(error: BaseException) -> FailureKind | None:
    for cls in type(error).__mro__:
        if cls.__name__ == "OutOfMemoryError" and _library(cls) == "torch":
            return FailureKind.CUDA_OOM
        if cls.__name__ == "OutOfMemoryError" and _library(cls) == "cupy":
            return FailureKind.FRAMEWORK_OOM
    return FailureKind.MEMORY_ERROR if isinstance(error, MemoryError) else None


def _kind_of_text(error: BaseException, text: str) -> FailureKind | None:
    # Libraries raise RuntimeError or their own types; a ValueError that mentions memory is the user's own.
    if not (type(error) in {RuntimeError, MemoryError, SystemError} or _library(type(error)) in _LIBRARIES):
        return None
    decisive = _decisive_part(text)
    return next((rule.kind for rule in _RULES if rule.matches(decisive)), None)


def _decisive_part(text: str) -> str:
    """Return the first and last line of an exception from a worker or thread, else the whole text."""
    if "Original Traceback (most recent call last)" not in text:
        return text
    head, *lines = text.strip().splitlines()
    last = next((line for line in reversed(lines) if _EXCEPTION_LINE.match(line)), "")
    return f"{head}\n{last}"


def _classify_os_error(error: OSError, text: str) -> Finding | None:
    if getattr(error, "winerror", None) == _WINERROR_COMMIT:
        kind = FailureKind.COMMIT_LIMIT
    elif error.errno == errno.ENOMEM:
        kind = FailureKind.ENOMEM
    elif error.errno in {errno.EMFILE, errno.ENFILE}:
        kind = FailureKind.OPEN_FILES
    elif error.errno == errno.ENOSPC and str(error.filename or "").startswith("/dev/shm"):  # noqa: S108  the system's
        kind = FailureKind.SHM_FULL
    elif f"WinError {_WINERROR_COMMIT}" in text:
        kind = FailureKind.COMMIT_LIMIT
    else:
        return None
    return finding_in_text(kind, _first_line(text), text)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0]
