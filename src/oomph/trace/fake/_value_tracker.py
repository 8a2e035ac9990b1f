"""Operations on fake tensors, with the values that are known and assumptions about those that depend on data."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from ...errors import UsageError
from .._trace import Guess
from ._data_dependent import Assumption, DataAssumptions, substitute_for
from ._known_values import (
    EXAMPLE_MASK,
    Known,
    assumption_of,
    attach,
    evaluate,
    fill,
    forget_written,
    is_filled,
    is_small_enough,
    known,
)
from ._likely_values import LIKELY, copy_traits
from ._sparse_tensors import is_sparse_call, run_sparse
from ._user_code import running_line

_MAX_READS = 10_000  # of one line; a loop that reads more never ends
_MAX_READS_OF_WHILE = 1_000


class EndlessLoop(UsageError):
    """A loop waits for a value that depends on data."""


class ValueTracker:
    """Runs operations on fake tensors.

    Args:
        assumed: assumptions about values that depend on data.
        floats_decide: False if fractions that are read from data are only logged, and decide no branch.
    """

    def __init__(self, assumed: DataAssumptions, *, floats_decide: bool = True) -> None:
        self.assumed, self._floats_decide = assumed, floats_decide
        self.guesses: dict[Guess, None] = {}  # in order, without repetitions
        self.random_lines: set[str] = set()  # lines where a random draw decides
        self.assumed_types: dict[Guess, type] = {}  # guesses of numbers, which can be traced with others
        self.masks: set[Guess] = set()  # booleans read from masks of the example batch
        self.is_building = False  # a model that reads its weights while it is built is built on real tensors
        self._reads: Counter[str] = Counter()

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operation; one whose result depends on data gets an assumed result."""
        substitute = substitute_for(func, args)
        if substitute is not None:
            return self._substitute(func, args, kwargs, substitute)
        out = run_sparse(func, args) if is_sparse_call(args) else NotImplemented
        if out is NotImplemented:
            out = func(*args, **kwargs)
        if isinstance(func, OpOverload):
            if is_filled(func) and is_small_enough(func, out):
                attach(out, [fill(func, args, kwargs)], "")
            elif _has_known_inputs(args) and (_is_mutable(func) or is_small_enough(func, out)):
                self._propagate(func, args, kwargs, out)
            elif _is_mutable(func):
                forget_written(func, args, kwargs)
            copy_traits(func, args, out)
        return out

    def _propagate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        results = _try_evaluate(func, args, kwargs)
        if results is not None:
            attach(out, results, assumption_of(args, kwargs))
        elif _is_mutable(func):
            forget_written(func, args, kwargs)

    def _substitute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], assumption: Assumption) -> Any:
        if assumption.is_number:
            return self.read_number(args[0])
        results = None if assumption_of(args, kwargs) else _try_evaluate(func, args, kwargs)
        if results is not None and _agree(results):
            out = tree_map(_like, results[0])
            attach(out, results[:1], "")
            return out
        if not assumption.is_certain(args):
            self.guess(assumption.text, is_branch=assumption.is_share(args))
        return assumption.substitute(func, args, kwargs, self.assumed)

    def read_number(self, tensor: Tensor) -> bool | int | float:
        """Return the number in a tensor of one element: its value if it is known, otherwise an assumed one."""
        value = known(tensor)
        if value is not None:
            with no_dispatch():
                if value.assumption == EXAMPLE_MASK and tensor.dtype == torch.bool:
                    self.masks.add(self.guess(value.assumption))
                    return bool(value.at(self.assumed.draw).item()) != self.assumed.other_masks
                return self._read(value).item()
        number = self.assumed.number(tensor.dtype, likely=getattr(tensor, LIKELY, None))
        decides = self._floats_decide or not isinstance(number, float)
        guess = self.guess(f"a value that depends on data counts as {number}", is_branch=decides)
        self.assumed_types[guess] = type(number)
        return number

    def read_values(self, tensor: Tensor) -> Tensor:
        """Return the values of a tensor as a real one, for `.tolist()` and `.numpy()`."""
        value = known(tensor)
        if value is not None:
            return self._read(value)
        number = self.assumed.number(tensor.dtype, likely=getattr(tensor, LIKELY, None))
        decides = self._floats_decide or not isinstance(number, float)
        guess = self.guess(f"values that depend on data count as {number}", is_branch=decides)
        self.assumed_types[guess] = type(number)
        with no_dispatch():
            return torch.full(tensor.shape, number, dtype=tensor.dtype)

    def _read(self, value: Known) -> Tensor:
        if value.assumption:
            self.guess(value.assumption, is_branch=True)
        if len(value.values) > 1 and not value.is_certain:
            self.random_lines.add(running_line())
        return value.at(self.assumed.draw)

    def guess(self, text: str, *, is_branch: bool = False) -> Guess:
        """Note an assumption at the running line of the user's code."""
        if self.is_building:
            raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)
        line = running_line()
        guess = Guess(line, text, is_branch)
        self.guesses[guess] = None
        self._reads[line] += 1
        if is_branch and self._reads[line] > (_MAX_READS_OF_WHILE if "`while " in line else _MAX_READS):
            raise EndlessLoop(
                f"a loop does not end in a trace, because {line} reads a value that depends on data",
                "bound the number of iterations, or give the Job a step without the loop",
            )
        return guess


class BuildMode(TorchDispatchMode):
    """Dispatch mode in which known values are tracked while nothing is recorded."""

    def __init__(self, tracker: ValueTracker) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tracker = tracker

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._tracker.call(func, args, kwargs or {})


_MUTABLE: dict[Any, bool] = {}


def _is_mutable(func: OpOverload) -> bool:
    if func not in _MUTABLE:
        _MUTABLE[func] = bool(func._schema.is_mutable)
    return _MUTABLE[func]


def _has_known_inputs(args: tuple[Any, ...]) -> bool:
    """Return False if a tensor among the arguments has no known value; those in lists are not looked at."""
    return not any(isinstance(arg, FakeTensor) and not hasattr(arg, "_oomph_known") for arg in args)


def _try_evaluate(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any] | None:
    try:
        return evaluate(func, args, kwargs)
    except Exception:  # noqa: BLE001  then the value is unknown; an error of the user's is raised elsewhere
        return None


def _agree(results: list[Any]) -> bool:
    first, *others = (tree_leaves(result) for result in results)
    pairs = [pair for other in others for pair in zip(first, other, strict=True)]
    with no_dispatch():
        return all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def _like(value: Any) -> Any:
    return torch.empty(value.shape, dtype=value.dtype) if isinstance(value, Tensor) else value
