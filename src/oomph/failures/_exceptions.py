"""Which exceptions are memory running short. A user's own error never is, whatever its text says."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from ._findings import find_in
from ._kind import FailureKind, Family, Finding
from ._rules import RULES, Rule
from ._table import CAUSES

# Libraries whose exceptions may wrap another one without saying `from`.
_WRAPPING = {"torch", "lightning", "lightning_fabric", "pytorch_lightning", "accelerate", "deepspeed"}
# Libraries that have exception types of their own for running out of memory.
_LIBRARIES = _WRAPPING | {
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
_WINDOWS_COMMIT = 1455
_DEEPEST = 20  # causes of causes; nobody chains more on purpose
# What arrives as a text of the system or the shell can't be an exception's own words.
_NO_EXCEPTION = {FailureKind.HOST_KILL, FailureKind.SCHEDULER_KILL, FailureKind.NOTEBOOK_DIED}
_RAISED = re.compile(r"[\w.]*(?:Error|Exception)\b")
_RULES = tuple(rule for rule in RULES if CAUSES[rule.kind].family is not Family.NUMBERS)


def classify_exception(error: BaseException) -> Finding | None:
    """What an exception says about memory; None when it is about something else.

    Follows `raise … from …`. An exception raised while another was handled is followed only where torch or a trainer
    raised it: a bug in somebody's `except` block is theirs, and not out of memory.
    """
    found = [finding for one in _chain(error) if (finding := _own(one)) is not None]
    # "A worker exited" is raised from the error that says what killed it.
    return next((one for one in found if one.kind is not FailureKind.WORKER_GONE), found[0] if found else None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    waiting = [error]
    while waiting and len(seen) < _DEEPEST:
        one = waiting.pop(0)
        if any(one is other for other in seen):
            continue
        seen.append(one)
        yield one
        parts = getattr(one, "exceptions", ())  # of an exception group
        if isinstance(parts, tuple):
            waiting.extend(part for part in parts if isinstance(part, BaseException))
        if one.__cause__ is not None:
            waiting.append(one.__cause__)
        elif one.__context__ is not None and not one.__suppress_context__ and _root(type(one)) in _WRAPPING:
            waiting.append(one.__context__)


def _root(cls: type) -> str:
    return cls.__module__.partition(".")[0]


def _own(error: BaseException) -> Finding | None:
    """What one exception says by its type, then by its words."""
    text = f"{type(error).__name__}: {_words(error)}"
    if isinstance(error, OSError):
        return _system(error, text)
    kind = _by_words(error, text)
    if kind is None:
        kind = _by_type(error)
    return None if kind is None or not CAUSES[kind].is_memory else find_in(kind, _first_line(text), text)


def _words(error: BaseException) -> str:
    """An exception's text; one that can't even say what it is says nothing."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  somebody's own __str__
        return ""


def _by_type(error: BaseException) -> FailureKind | None:
    for cls in type(error).__mro__:
        if cls.__name__ == "OutOfMemoryError" and _root(cls) == "torch":
            return FailureKind.CUDA_OOM
        if cls.__name__ == "OutOfMemoryError" and _root(cls) == "cupy":
            return FailureKind.FRAMEWORK_OOM
    return FailureKind.MEMORY_ERROR if isinstance(error, MemoryError) else None


def _by_words(error: BaseException, text: str) -> FailureKind | None:
    # A ValueError that speaks of memory is somebody's own; libraries raise RuntimeError or types of their own.
    if not (type(error) in {RuntimeError, MemoryError, SystemError} or _root(type(error)) in _LIBRARIES):
        return None
    told = _decisive(text)
    rule = next((rule for rule in _RULES if rule.kind not in _NO_EXCEPTION and _fits(rule, told)), None)
    return None if rule is None else rule.kind


def _decisive(text: str) -> str:
    """The part that counts: of an error carried over from a worker or a thread, its last line."""
    if "Original Traceback (most recent call last)" not in text:
        return text
    head, *lines = text.strip().splitlines()
    last = next((line for line in reversed(lines) if _RAISED.match(line)), "")
    return f"{head}\n{last}"


def _fits(rule: Rule, text: str) -> bool:
    return rule.words in text and (rule.form is None or rule.form.search(text) is not None)


def _system(error: OSError, text: str) -> Finding | None:
    """What the operating system refused, by its number."""
    if getattr(error, "winerror", None) == _WINDOWS_COMMIT:
        kind = FailureKind.COMMIT_LIMIT
    elif error.errno == errno.ENOMEM:
        kind = FailureKind.REFUSED_BY_SYSTEM
    elif error.errno in {errno.EMFILE, errno.ENFILE}:
        kind = FailureKind.OPEN_FILES
    elif error.errno == errno.ENOSPC and str(error.filename or "").startswith("/dev/shm"):  # noqa: S108  the system's
        kind = FailureKind.SHM_FULL
    elif f"WinError {_WINDOWS_COMMIT}" in text:
        kind = FailureKind.COMMIT_LIMIT
    else:
        return None
    return find_in(kind, _first_line(text), text)


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0]
