"""Batches: any nested structure of tensors that share a batch dimension, cut into pieces and moved to a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from ..errors import WrongCall

Splitter = Callable[[Any, int], Sequence[Any]]

_HOW = "give the guard split=, a function of (batch, pieces) that returns a list of that many smaller batches"


def split(batch: Any, pieces: int) -> list[Any]:
    """Cut a batch along its first dimension into pieces whose sizes differ by at most one sample.

    Tensors are cut, and lists of as many plain values as there are samples; everything else goes to each piece as it
    is. The pieces share the batch's memory.

    Raises:
        WrongCall: the tensors have different numbers of rows, or there are more pieces than samples.
    """
    leaves, form = tree_flatten(_plain(batch), is_leaf=_is_plain_list)
    samples = _rows(leaves)
    if not 1 <= pieces <= samples:
        raise WrongCall(f"{samples} samples can't make {pieces} pieces", "ask for fewer")
    if pieces == 1:
        return [batch]
    bounds = piece_bounds(samples, pieces)
    return [tree_unflatten([_cut(leaf, samples, *bound) for leaf in leaves], form) for bound in bounds]


def piece_bounds(samples: int, pieces: int) -> list[tuple[int, int]]:
    """Where each piece begins and ends; the larger pieces come first, so that the first one tells whether it fits."""
    size, rest = divmod(samples, pieces)
    starts = [index * size + min(index, rest) for index in range(pieces + 1)]
    return list(zip(starts[:-1], starts[1:], strict=True))


def count_samples(batch: Any, *, ragged: bool = False) -> int:
    """How many samples a batch has: the rows that all tensors share, or those of the first tensor if it is ragged.

    Raises:
        WrongCall: it has no tensor, or tensors with different numbers of rows.
    """
    leaves, _ = tree_flatten(_plain(batch), is_leaf=_is_plain_list)
    if not ragged:
        return _rows(leaves)
    first = next((leaf for leaf in leaves if _has_rows(leaf)), None)
    if first is None:
        raise WrongCall("the batch holds no tensor with a first dimension", "pass tensors with one row a sample")
    return int(first.shape[0])


def move(batch: Any, device: torch.device) -> Any:
    """Put a piece onto the device; what is there already is not copied."""
    return tree_map(lambda leaf: leaf.to(device, non_blocking=True) if isinstance(leaf, Tensor) else leaf, batch)


def _rows(leaves: list[Any]) -> int:
    sizes = sorted({int(leaf.shape[0]) for leaf in leaves if _has_rows(leaf)})
    if not sizes:
        raise WrongCall("the batch holds no tensor with a first dimension", "pass tensors with one row a sample")
    if len(sizes) > 1:
        shown = " and ".join(str(size) for size in sizes[:4])
        raise WrongCall(f"the batch's tensors have {shown} rows, so it can't be cut by samples", _HOW)
    return sizes[0]


def _has_rows(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and leaf.dim() > 0


def _cut(leaf: Any, samples: int, start: int, end: int) -> Any:
    if _has_rows(leaf) or (_is_plain_list(leaf) and len(leaf) == samples):
        return leaf[start:end]
    return leaf


def _is_plain_list(value: object) -> bool:
    """A list without tensors, such as file names: one value, not a level of the structure."""
    return type(value) in {list, tuple} and not any(isinstance(leaf, Tensor) for leaf in tree_flatten(value)[0])


def _plain(batch: Any) -> Any:
    """Mappings that torch doesn't know as such (a tokenizer's output) as plain dictionaries."""

    def open_mapping(leaf: Any) -> Any:
        return {name: _plain(value) for name, value in leaf.items()} if isinstance(leaf, Mapping) else leaf

    return tree_map(open_mapping, batch)
