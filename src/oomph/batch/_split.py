"""Batches split into micro-batches, which share the batch's memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..errors import UsageError
from ._samples import SPLIT_HELP, count_samples, describe_fields, holds_samples, uncollated_count
from ._structure import Container, container_of, name_of


def split_batch(batch: Any, micro_batches: int) -> list[Any]:
    """Split a batch along its first dimension into micro-batches whose sizes differ by at most one sample.

    Tensors are split, and so are lists with one item per sample; anything else goes into every micro-batch unchanged.
    The micro-batches share the batch's memory.

    Raises:
        UsageError: the number of samples or the meaning of a list can't be known, or there are fewer samples than
            micro-batches.
    """
    return split_samples(batch, count_samples(batch), micro_batches)


def split_samples(batch: Any, samples: int, micro_batches: int) -> list[Any]:
    """Split a batch with a known number of samples into micro-batches, as `split_batch` does.

    Tensors with another first dimension go into every micro-batch.
    """
    if not 1 <= micro_batches <= samples:
        raise UsageError(f"{samples} samples can't be split into {micro_batches} micro-batches", "request fewer")
    if micro_batches == 1:
        return [batch]
    parts = _Cut(batch, samples, micro_batch_sizes(samples, micro_batches)).parts(batch)
    if parts is None:
        raise UsageError(
            f"nothing in the batch has {samples} rows or items ({describe_fields(batch, 'batch') or 'no tensors'})",
            f"return another number from samples=, or give the guard {SPLIT_HELP}",
        )
    return list(parts)


def micro_batch_sizes(samples: int, micro_batches: int) -> list[int]:
    """Return the samples of each micro-batch, larger ones first, so that the first one shows whether it fits."""
    size, rest = divmod(samples, micro_batches)
    return [size + 1] * rest + [size] * (micro_batches - rest)


def slices(sizes: list[int]) -> list[slice]:
    """Return the rows of each micro-batch."""
    return [slice(end - size, end) for size, end in zip(sizes, itertools.accumulate(sizes), strict=True)]


class _Cut:
    """One batch that is being split."""

    def __init__(self, batch: Any, samples: int, sizes: list[int]) -> None:
        self._batch, self._samples, self._sizes = batch, samples, sizes

    def parts(self, value: Any) -> Sequence[Any] | None:
        """Return the part of a value for each micro-batch, or None if it goes into all of them unchanged."""
        if isinstance(value, Tensor):
            return value.split_with_sizes(self._sizes) if value.dim() and value.size(0) == self._samples else None
        container = container_of(value)
        if container is None:
            return self._leaf_parts(value)
        if isinstance(value, PackedSequence):
            raise self._opaque(value)
        if container.is_sequence and len(value) == self._samples and self._holds_samples(value):
            return [container.rebuild(value, list(value[rows])) for rows in slices(self._sizes)]
        return self._field_parts(container, value)

    def _field_parts(self, container: Container, value: Any) -> Sequence[Any] | None:
        items = list(container.values(value))
        columns = [self.parts(item) for item in items]
        if not any(columns):
            return None
        count = len(self._sizes)
        filled = [column or [item] * count for item, column in zip(items, columns, strict=True)]
        return [container.rebuild(value, list(row)) for row in zip(*filled, strict=True)]

    def _leaf_parts(self, value: Any) -> Sequence[Any] | None:
        if isinstance(value, np.ndarray):
            is_along = value.ndim and value.shape[0] == self._samples
            return [value[rows] for rows in slices(self._sizes)] if is_along else None
        attributes = getattr(value, "__dict__", None)
        if not attributes or isinstance(value, (type, nn.Module)):
            return None
        if any(isinstance(attribute, Tensor) and attribute.dim() for attribute in attributes.values()):
            raise self._opaque(value)
        return None

    def _holds_samples(self, items: Any) -> bool:
        answer = holds_samples(items, self._samples)
        if answer is None and uncollated_count(self._batch) == self._samples:
            answer = True
        if answer is None:
            name = name_of(items, self._batch, "batch")
            shapes = describe_fields(items, name or "batch")
            format_name = "list" if items is self._batch else "torchvision"
            raise UsageError(
                f"{name} has {len(items)} items and the batch {self._samples} samples, so its items may be samples or "
                f"fields{f' ({shapes})' if shapes else ''}",
                f'give the guard split="{format_name}" if each item belongs to a sample, or {SPLIT_HELP}',
            )
        return answer

    def _opaque(self, value: Any) -> UsageError:
        return UsageError(
            f"{name_of(value, self._batch, 'batch')} is a {type(value).__name__}, which oomph can't split",
            f"give the guard {SPLIT_HELP}",
        )
