"""Random nested batches for property tests."""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool)
SIZE = (224, 320)  # of all images


class Pair(NamedTuple):
    inputs: Any
    targets: Any


@dataclass(frozen=True)
class Record:
    images: Any
    note: Any = "shared"


@dataclass
class Labels:
    values: Any
    scale: float = 1.0


def rows(samples: int, trailing: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a tensor whose rows all differ."""
    count = samples * int(np.prod(trailing, dtype=int))
    return torch.arange(count).reshape(samples, *trailing).to(dtype)


@st.composite
def tensors(draw: st.DrawFn, samples: int) -> Tensor:
    trailing = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    return rows(samples, trailing, draw(st.sampled_from(DTYPES)))


def leaves(samples: int) -> st.SearchStrategy[Any]:
    plain: st.SearchStrategy[Any] = st.sampled_from([None, "task", 3, 2.5, torch.float16])
    return st.one_of(
        tensors(samples),
        st.just(np.arange(samples)),
        st.just([f"{row}.jpg" for row in range(samples)]),
        st.just(tuple(f"{row}.png" for row in range(samples))),
        st.just([rows(samples, (2,)), rows(samples, (2,))]),
        st.just([rows(10 + row) for row in range(samples)]),  # sequences of different lengths
        st.just([{"boxes": rows(10 + row, (4,)), "label": row} for row in range(samples)]),
        st.just(torch.tensor(2.0)),
        st.just(SIZE),
        plain,
    )


def _nodes(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["ids", "mask", "image", "extra"])
    return st.one_of(
        st.dictionaries(names, children, min_size=1, max_size=3),
        st.dictionaries(names, children, min_size=1, max_size=3).map(OrderedDict),
        st.builds(Pair, children, children),
        st.builds(Record, children),
        st.builds(Labels, children),
    )


@functools.cache  # building strategies takes longer than drawing from them
def nested_batches(samples: int) -> st.SearchStrategy[Any]:
    """Return batches with at least one tensor along the batch, in any nesting."""
    inner = st.recursive(leaves(samples), _nodes, max_leaves=4)
    return st.builds(lambda inputs, rest: {"inputs": inputs, "rest": rest}, tensors(samples), inner)


def are_equal(left: Any, right: Any) -> bool:
    """Compare two nested structures, types, dtypes and devices included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        return left.dtype == right.dtype and left.device == right.device and torch.equal(left, right)
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(are_equal, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and all(are_equal(left[name], right[name]) for name in left)
    if isinstance(left, (Record, Labels)):
        return all(are_equal(getattr(left, field.name), getattr(right, field.name)) for field in fields(left))
    return bool(left == right)
