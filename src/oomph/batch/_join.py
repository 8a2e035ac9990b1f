"""Model outputs: those of micro-batches joined into those of the whole batch."""

from __future__ import annotations

import enum
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UsageError, quote
from ._samples import holds_samples, rows_of
from ._structure import Container, container_of

_PLAIN = (str, bytes, numbers.Number, enum.Enum, torch.dtype, torch.device, type(None))
_FIX = "return tensors with one row per sample from the model, or checkpoint blocks instead of splitting"


def join_outputs(parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Join the outputs of micro-batches into those of the whole batch.

    Tensors, arrays and lists with one row or item per sample are concatenated, with gradients. Other tensors and plain
    values must be equal in all parts, and the first part's is used. Other objects, such as a cache of keys and values,
    become None.

    Args:
        parts: the outputs of each micro-batch.
        sizes: the samples of each micro-batch.

    Raises:
        UsageError: the parts differ in structure, or something differs that doesn't lie along the batch.
    """
    if len(parts) == 1:
        return parts[0]
    return _join(list(parts), list(sizes), "outputs")


def _join(values: list[Any], sizes: list[int], name: str) -> Any:
    first = values[0]
    if isinstance(first, (Tensor, np.ndarray)):
        return _join_rows(values, sizes, name)
    container = container_of(first)
    if container is not None:
        return _join_containers(container, values, sizes, name)
    if all(value is first for value in values):
        return first
    if not isinstance(first, _PLAIN):
        return None
    if not all(isinstance(value, _PLAIN) and _are_equal(value, first) for value in values):
        shown = " and ".join(quote(value, 30) for value in values[:2])
        raise UsageError(f"{name} is {shown} in different micro-batches", _FIX)
    return first


def _join_rows(values: list[Any], sizes: list[int], name: str) -> Any:
    first = values[0]
    if not all(isinstance(value, type(first)) or isinstance(first, type(value)) for value in values):
        raise _different(name, [type(value).__name__ for value in values])
    trailing = {(value.dtype, value.shape[1:]) for value in values}
    is_along = all(rows_of(value) == size for value, size in zip(values, sizes, strict=True))
    if is_along and len(trailing) == 1:
        return torch.cat(values) if isinstance(first, Tensor) else np.concatenate(values)
    if is_along or not all(_are_same_rows(value, first) for value in values[1:]):
        shapes = " and ".join(str(tuple(value.shape)) for value in values[:2])
        samples = " and ".join(str(size) for size in sizes[:2])
        raise UsageError(
            f"{name} has shapes {shapes} in micro-batches of {samples} samples: it does not lie along the batch, and "
            "differs between them",
            _FIX,
        )
    return first


def _join_containers(container: Container, values: list[Any], sizes: list[int], name: str) -> Any:
    first = values[0]
    if any(type(value) is not type(first) for value in values):
        raise _different(name, [type(value).__name__ for value in values])
    if container.is_sequence and _hold_samples(values, sizes, name):
        return container.rebuild(first, [item for value in values for item in value])
    names = list(container.names(first))
    if any(list(container.names(value)) != names for value in values[1:]):
        described = [tuple(value) if isinstance(value, Mapping) else f"{len(value)} items" for value in values]
        raise _different(name, described)
    columns = zip(*(container.values(value) for value in values), strict=True)
    items = [_join(list(column), sizes, name + suffix) for suffix, column in zip(names, columns, strict=True)]
    return container.rebuild(first, items)


def _hold_samples(values: list[Any], sizes: list[int], name: str) -> bool:
    answers = {holds_samples(value, size) for value, size in zip(values, sizes, strict=True)}
    if True in answers:
        return all(len(value) == size for value, size in zip(values, sizes, strict=True))
    if answers == {None}:
        raise UsageError(
            f"{name} has as many items as samples in every micro-batch, so its items may be samples or fields",
            "return a dict of fields, or a tensor with one row per sample",
        )
    return False


def _are_equal(left: Any, right: Any) -> bool:
    return bool(left == right) or (left != left and right != right)  # noqa: PLR0124  NaN


def _are_same_rows(left: Any, right: Any) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if isinstance(left, Tensor):
        can_be_nan = left.is_floating_point() or left.is_complex()
        return torch.allclose(left, right, rtol=0, atol=0, equal_nan=True) if can_be_nan else torch.equal(left, right)
    return bool(np.array_equal(left, right))


def _different(name: str, described: Sequence[object]) -> UsageError:
    shown = " and ".join(quote(value, 40) for value in list(dict.fromkeys(map(str, described)))[:2])
    return UsageError(f"{name} differs between micro-batches: {shown}", _FIX)
