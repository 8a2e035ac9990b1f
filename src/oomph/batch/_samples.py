"""The number of samples of a batch, and which of its lists hold one item per sample.

A tensor has as many samples as rows. A list or tuple of similar items can be read in two ways: its items are samples,
as the images of a detection batch, or fields, as the inputs and targets that torch's `default_collate` returns in a
list. Its number of samples is its length in the first case, and the rows of its items in the second. The number of
samples of a batch is the one that all of its fields allow. If there is none, or several, the user is asked.
"""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import UsageError, quote, shorten
from ._structure import container_of, named_leaves

SampleCounter = Callable[[Any], int]

SAMPLES_HELP = "give the guard samples=, a function of the batch that returns its number of samples"
SPLIT_HELP = "split=, a function of (batch, n) that returns a list of n smaller batches"

_IMAGE_CHANNELS = (1, 3, 4)
_IMAGE_RANK = 3
_FEW = 4  # longer lists rarely hold the fields of a batch, and longer tuples of numbers are rarely sizes
_PAIR = 2


def count_samples(batch: Any, samples: SampleCounter | None = None) -> int:
    """Count the samples of a batch.

    Args:
        batch: any nesting of tensors, NumPy arrays, lists, tuples, mappings and dataclasses.
        samples: the user's function, which is called instead.

    Raises:
        UsageError: the fields have different numbers of samples, or more than one number is possible.
    """
    if samples is not None:
        return _checked_count(samples(batch))
    counts = _possible_counts(batch, is_root=True)
    if counts is None:
        raise UsageError("the batch has no tensor with a first dimension", f"{SAMPLES_HELP}, or {SPLIT_HELP}")
    if len(counts) == 1:
        (count,) = counts
        return count
    length = uncollated_count(batch)
    if length is None or length not in counts:
        raise _unknown_count(batch, counts)
    return length


def holds_samples(items: Sequence[Any], samples: int) -> bool | None:
    """Return whether a list or tuple of a batch has one item per sample, or None if that can't be known."""
    if len(items) != samples:
        return False
    counts = _common_counts(items)
    if counts is None:
        return _is_column(items)
    if not are_alike(items):
        return False
    if not isinstance(items[0], Tensor):
        return None if samples in counts else True
    if len(items) > _FEW or _look_like_images(items):
        return None if samples in counts else True
    if samples in counts:  # the inputs of a model, for example
        return False
    return None if any(item.dim() and item.shape[0] == samples for item in items) else True


def uncollated_count(batch: Any) -> int | None:
    """Return the length of the lists of a batch if they clearly hold samples.

    They do if all lists of similar items have the same length, and at least one holds dicts: the images and targets
    of a detection batch, for example.
    """
    lists = list(_lists_of_similar_items(batch, is_root=True))
    lengths = {len(items) for items in lists}
    has_dicts = any(isinstance(items[0], Mapping) for items in lists)
    return lengths.pop() if len(lists) > 1 and len(lengths) == 1 and has_dicts else None


def are_alike(items: Sequence[Any]) -> bool:
    """Return True if all items could be samples of one dataset: the same type, rank and names."""
    kind = _kind(items[0])
    return kind is not None and all(_kind(item) == kind for item in items[1:])


def describe_fields(value: Any, name: str, limit: int = 6) -> str:
    """Return the names and shapes of the tensors and arrays of a structure, shortened."""
    shapes = [(path, tuple(leaf.shape)) for path, leaf in named_leaves(value, name) if rows_of(leaf) is not None]
    shown = ", ".join(f"{shorten(path)} {shape}" for path, shape in shapes[:limit])
    return f"{shown} and {len(shapes) - limit} more" if len(shapes) > limit else shown


def rows_of(value: Any) -> int | None:
    """Return the first dimension of a tensor or array, or None if it has none."""
    if isinstance(value, (Tensor, np.ndarray)) and value.ndim:
        return int(value.shape[0])
    return None


def _checked_count(count: Any) -> int:
    try:
        number = 0 if isinstance(count, bool) else operator.index(count)
    except TypeError:
        number = 0
    if number < 1:
        raise UsageError(
            f"samples= returned {quote(count)}", "return the number of samples, a whole number of at least 1"
        )
    return number


def _possible_counts(value: Any, *, is_root: bool = False) -> set[int] | None:
    """Return the numbers of samples that a value allows; None stands for any number."""
    if isinstance(value, Tensor):
        return {value.size(0)} if value.dim() else None
    container = container_of(value)
    if container is None:
        rows = rows_of(value)
        return None if rows is None else {rows}
    counts = _common_counts(container.values(value))
    if counts is not None and container.is_sequence and _may_hold_samples(value, is_root=is_root):
        return counts | {len(value)}
    return counts


def _common_counts(values: Iterable[Any]) -> set[int] | None:
    common = None
    for value in values:
        counts = _possible_counts(value)
        if counts is not None:
            common = counts if common is None else common & counts
    return common


def _may_hold_samples(items: Sequence[Any], *, is_root: bool) -> bool:
    if is_root and isinstance(items[0], Tensor):  # the fields that a loader returns, unless they look like images
        return len(items) > _PAIR and _look_like_images(items) and are_alike(items)
    return are_alike(items)


def _look_like_images(items: Sequence[Any]) -> bool:
    return all(
        isinstance(item, Tensor) and item.dim() == _IMAGE_RANK and item.shape[0] in _IMAGE_CHANNELS for item in items
    )


def _kind(value: Any) -> object:
    """Return what samples of a dataset have in common, or None for a value that is no sample with tensors."""
    if isinstance(value, (Tensor, np.ndarray)):
        return type(value), value.ndim, value.dtype
    if isinstance(value, Mapping):
        return type(value), tuple(value)
    if type(value) is tuple:  # a sample is a tuple of different things; similar things are a list of their own
        kinds = tuple(_kind(item) for item in value)
        return kinds if len(set(kinds)) > 1 else None
    container = container_of(value)
    return type(value) if container is not None and not container.is_sequence else None


def _is_column(items: Sequence[Any]) -> bool | None:
    """Return whether a list or tuple without rows, as long as the batch, has a value per sample."""
    if not isinstance(items, tuple):
        are_columns = all(isinstance(item, tuple) and len(item) == len(items) and _are_text(item) for item in items)
        return None if are_columns else True
    if all(_is_numeric(item) for item in items):  # the height and width of all images, for example
        return False if len(items) <= _FEW else None
    return True


def _are_text(items: Iterable[Any]) -> bool:
    return all(isinstance(item, (str, bytes)) for item in items)


def _is_numeric(value: Any) -> bool:
    return isinstance(value, numbers.Number) or (isinstance(value, tuple) and all(_is_numeric(item) for item in value))


def _lists_of_similar_items(value: Any, *, is_root: bool) -> Iterator[Sequence[Any]]:
    container = container_of(value)
    if container is None:
        return
    if container.is_sequence and not is_root and value and are_alike(value):
        yield value
        return
    for item in container.values(value):
        yield from _lists_of_similar_items(item, is_root=False)


def _unknown_count(batch: Any, counts: set[int]) -> UsageError:
    fields = describe_fields(batch, "batch")
    help_ = f"{SAMPLES_HELP}, or {SPLIT_HELP}"
    if counts:
        possible = " or ".join(str(count) for count in sorted(counts)[:4])
        return UsageError(f"the batch may have {possible} samples ({fields})", help_)
    rows = {rows_of(leaf) for _, leaf in named_leaves(batch, "")} - {None}
    shown = " and ".join(str(count) for count in sorted(filter(None, rows))[:4])
    return UsageError(f"the batch's tensors have {shown} rows ({fields}), so it can't be split by samples", help_)
