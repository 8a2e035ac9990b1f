"""A fact of a machine: a value and where it was read. Not knowing is a value of its own."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Unknown:
    """The value could not be read; `unknown` says why."""

    unknown: str


class NoLimit(enum.Enum):
    """There is a place for a limit, it was read, and it holds none."""

    NO_LIMIT = "no limit"


NO_LIMIT = NoLimit.NO_LIMIT


@dataclass(frozen=True)
class Fact(Generic[T]):
    """One value read off a machine.

    Attributes:
        value: what was read, or `Unknown`.
        source: where it was read, as a person would look it up again: "/proc/meminfo MemTotal".
    """

    value: T | Unknown
    source: str

    @property
    def known(self) -> T | None:
        """The value, or None where it is unknown; for reading, never for storing."""
        return None if isinstance(self.value, Unknown) else self.value

    def map(self, function: Callable[[T], R]) -> Fact[R]:
        """Apply a function to the value, if there is one."""
        value = self.value
        return Fact(value if isinstance(value, Unknown) else function(value), self.source)


Limit = Fact[int | NoLimit]


def unknown(why: str, source: str) -> Fact[T]:
    """Make the fact that something isn't known."""
    return Fact(Unknown(why), source)


def limited(limit: Limit) -> int | None:
    """The bytes of a limit that is known and really limits, else None."""
    return None if limit.known is None or isinstance(limit.known, NoLimit) else limit.known
