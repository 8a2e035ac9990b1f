r"""Every error that oomph raises on purpose.

    OomphError                 exit code 1: something failed
    ├── UsageError              exit code 2: the call can't be carried out as written
    │   ├── InvalidSize            a text that should be a size of memory is not one
    │   ├── UnknownName        no GPU, machine or other thing of that name; knows the nearest ones
    │   ├── AmbiguousName      several things of that name; knows which
    │   ├── MissingFile        a file or folder that isn't there
    │   └── InvalidFile        a file that should be one of ours and isn't
    ├── RankLost               another rank of the run died, hung or gave up
    └── CannotFit              exit code 3: no settings fit the memory there is
        └── RetriesExhausted         a training step doesn't fit, whatever the guard does; the run was saved

Each carries `why`, what we got and what is wrong with it, and `fix`, what to do next; its text is one sentence of
both. The command line prints that sentence and leaves with `exit_code`:

    try:
        parse_size("12 bananas")
    except InvalidSize as error:
        print(error.why, error.fix, sep="\n")
"""

from __future__ import annotations

from typing import ClassVar


class OomphError(Exception):
    """Something failed that oomph can name."""

    exit_code: ClassVar[int] = 1

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why, fix)
        self.why = why
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.why}; {self.fix}."


class UsageError(OomphError):
    """The call can't be carried out as written; nothing was done."""

    exit_code = 2


class InvalidSize(UsageError):
    """A text that should be a size of memory is not one."""


class UnknownName(UsageError):
    """Nothing has that name. `nearest` holds the closest names that exist, best first."""

    def __init__(self, why: str, fix: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(why, fix)
        self.args = (why, fix, nearest)
        self.nearest = nearest


class AmbiguousName(UsageError):
    """Several things have that name. `matches` holds them."""

    def __init__(self, why: str, fix: str, matches: tuple[str, ...] = ()) -> None:
        super().__init__(why, fix)
        self.args = (why, fix, matches)
        self.matches = matches


class MissingFile(UsageError):
    """A file or folder that was named isn't there."""


class InvalidFile(UsageError):
    """A file that should be one of oomph's JSON documents can't be read as one."""


class CannotFit(OomphError):
    """No settings fit the memory there is."""

    exit_code = 3


class RankLost(OomphError):
    """Another rank of the run died, hung or gave up, so that this one can't go on."""


class RetriesExhausted(CannotFit):
    """A training step doesn't fit, whatever the guard does. `checkpoint` is where the run was saved, if anywhere."""

    def __init__(self, why: str, fix: str, checkpoint: str | None = None) -> None:
        super().__init__(why, fix)
        self.args = (why, fix, checkpoint)
        self.checkpoint = checkpoint


def shorten(text: str, limit: int = 60) -> str:
    """Return `text` cut to `limit` characters, with an ellipsis in place of the rest.

    Messages that repeat user input pass it through here: a nested value can be megabytes long.
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
