r"""The exceptions that oomph raises.

    OomphError                    exit code 1: an operation failed
    ├── UsageError                exit code 2: invalid arguments, settings or files
    │   ├── InvalidSize           a string that is not a memory size
    │   ├── UnknownName           no GPU, cloud machine or other entry has this name
    │   ├── AmbiguousName         several entries match this name
    │   ├── MissingFile           a file or folder does not exist
    │   └── InvalidFile           a file exists but oomph cannot read it as the expected document
    ├── RankLost                  another rank of a distributed run died, hung or failed
    └── CannotFit                 exit code 3: no settings fit into the available memory
        └── RetriesExhausted      a training step does not fit after every fallback; the run was saved

Each exception has `why`, the received value and what is wrong with it, and `fix`, what to do next. `str(error)` joins
both into one sentence. The command line prints that sentence and exits with `exit_code`:

    try:
        parse_size("12 bananas")
    except InvalidSize as error:
        print(error.why, error.fix, sep="\n")
"""

from __future__ import annotations

from typing import ClassVar


class OomphError(Exception):
    """Base class of all exceptions that oomph raises."""

    exit_code: ClassVar[int] = 1

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why, fix)
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.why}; {self.fix}."


class UsageError(OomphError):
    """The arguments, settings or files are invalid; nothing was changed."""

    exit_code = 2


class InvalidSize(UsageError):
    """A string is not a memory size."""


class UnknownName(UsageError):
    """No entry has this name. `nearest` holds the closest existing names, best match first."""

    def __init__(self, why: str, fix: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(why, fix)
        self.args = (why, fix, nearest)
        self.nearest = nearest


class AmbiguousName(UsageError):
    """Several entries match this name. `matches` holds them."""

    def __init__(self, why: str, fix: str, matches: tuple[str, ...] = ()) -> None:
        super().__init__(why, fix)
        self.args = (why, fix, matches)
        self.matches = matches


class MissingFile(UsageError):
    """A file or folder does not exist."""


class InvalidFile(UsageError):
    """A file cannot be read as the expected document."""


class CannotFit(OomphError):
    """No settings fit into the available memory."""

    exit_code = 3


class RankLost(OomphError):
    """Another rank of the distributed run died, hung or failed, so this rank cannot continue."""


class RetriesExhausted(CannotFit):
    """A training step does not fit after every fallback. `checkpoint` is the saved state's path, or None."""

    def __init__(self, why: str, fix: str, checkpoint: str | None = None) -> None:
        super().__init__(why, fix)
        self.args = (why, fix, checkpoint)
        self.checkpoint = checkpoint


def shorten(text: str, limit: int = 60) -> str:
    """Return `text` cut to `limit` characters, with an ellipsis in place of the rest.

    Messages that repeat user input pass it through here: a nested value can be megabytes long.
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def quote(value: object, limit: int = 60) -> str:
    """Return the `repr()` of `value` for use in a message, shortened; a shortened string keeps its quotes."""
    return repr(shorten(value, limit)) if isinstance(value, str) else shorten(repr(value), limit)


def describe(error: BaseException, limit: int = 200) -> str:
    """Return the type and message of a foreign exception on one line, shortened."""
    message = " ".join(str(error).split())
    return shorten(f"{type(error).__name__}: {message}" if message else type(error).__name__, limit)
