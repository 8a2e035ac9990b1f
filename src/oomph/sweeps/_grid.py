"""The cells of a sweep: every combination of the values of its axes, once per seed."""

from __future__ import annotations

import hashlib
import itertools
import re
from dataclasses import dataclass

from ..errors import UsageError, quote

Value = int | float | str
SEED = "seed"

_AXIS_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")  # in a value
_MAX_NAME = 120  # characters; file systems allow 255 bytes


@dataclass(frozen=True)
class Cell:
    """One combination of values, run with one seed.

    Attributes:
        values: The name and value of each axis, in the order of the axes.
        seed: The seed of the random numbers.
    """

    values: tuple[tuple[str, Value], ...]
    seed: int = 0

    @property
    def name(self) -> str:
        """The name of the cell's folder and row, such as `batch=16,img=320,seed=0`; two cells never share one."""
        pairs = [(name, str(value)) for name, value in self.placeholders.items()]
        safe = ",".join(f"{name}={_UNSAFE.sub('_', value)}" for name, value in pairs)
        exact = ",".join(f"{name}={value}" for name, value in pairs)
        if safe == exact and len(exact) <= _MAX_NAME:
            return exact
        return f"{safe[:_MAX_NAME]}-{hashlib.sha256(repr(pairs).encode()).hexdigest()[:8]}"

    @property
    def placeholders(self) -> dict[str, Value]:
        """The values by name, with the seed."""
        return {**dict(self.values), SEED: self.seed}


@dataclass(frozen=True)
class Grid:
    """The axes of a sweep; repeated values and seeds are removed.

    Attributes:
        axes: The name and values of each axis; the last axis changes fastest.
        seeds: The seeds that every combination runs with.

    Raises:
        UsageError: An axis has no value, an invalid name or the name of another one, or there is no seed.
    """

    axes: tuple[tuple[str, tuple[Value, ...]], ...]
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        axes = tuple((name, _distinct(values)) for name, values in self.axes)
        for name, values in axes:
            _check_axis(name, values)
        names = [name for name, _ in axes]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"the axis {repeated[0]} is given twice", "list all of its values in one place")
        if not self.seeds:
            raise UsageError("a sweep without seeds has no cells", "use at least one seed")
        # The fields of a frozen dataclass can only be normalized this way.
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "seeds", tuple(dict.fromkeys(self.seeds)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple(name for name, _ in self.axes)

    def cells(self) -> tuple[Cell, ...]:
        """Return all cells; the seeds of a combination follow one another."""
        combinations = itertools.product(*(values for _, values in self.axes))
        return tuple(
            Cell(tuple(zip(self.names, values, strict=True)), seed) for values in combinations for seed in self.seeds
        )


def _distinct(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Remove repeated values; 1, 1.0 and "1" are the same."""
    by_text = {str(value): value for value in reversed(tuple(dict.fromkeys(values)))}
    return tuple(reversed(by_text.values()))


def _check_axis(name: str, values: tuple[Value, ...]) -> None:
    if name == SEED:
        raise UsageError("seed is not an axis", "set the number of seeds with --seeds")
    if not _AXIS_NAME.fullmatch(name):
        raise UsageError(f"{quote(name)} is not a name of an axis", "use letters, digits and underscores")
    if not values:
        raise UsageError(f"the axis {name} has no values", "list at least one, such as 16,32")
