"""Facts: values read from a machine, each with its source. A value that can't be read is `Unknown`, never 0 or -1."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Unknown:
    """A value that could not be read; `unknown` is the reason."""

    unknown: str


class NoLimit(enum.Enum):
    """A limit that was read and is not set."""

    NO_LIMIT = "no limit"


NO_LIMIT = NoLimit.NO_LIMIT


@dataclass(frozen=True)
class Fact(Generic[T]):
    """A value read from a machine.

    Attributes:
        value: The value, or `Unknown`.
        source: Where it was read, so that a user can look it up: "/proc/meminfo MemTotal".
    """

    value: T | Unknown
    source: str

    @property
    def known(self) -> T | None:
        """The value, or None if it is unknown."""
        return None if isinstance(self.value, Unknown) else self.value

    def map(self, function: Callable[[T], R]) -> Fact[R]:
        """Apply a function to the value if it is known."""
        value = self.value
        return Fact(value if isinstance(value, Unknown) else function(value), self.source)


Limit = Fact[int | NoLimit]


def unknown(reason: str, source: str) -> Fact[T]:
    """Return the fact that a value could not be read."""
    return Fact(Unknown(reason), source)


def limit_bytes(limit: Limit) -> int | None:
    """Return the bytes of a limit, or None if it is unknown or not set."""
    return None if limit.known is None or isinstance(limit.known, NoLimit) else limit.known
