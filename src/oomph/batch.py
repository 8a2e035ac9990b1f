"""Batches: nested structures of tensors that share a batch dimension, split into micro-batches and moved to a device.

Written out instead of `torch.utils._pytree`, whose walks cost a tenth of a millisecond each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .errors import UsageError

Splitter = Callable[[Any, int], Sequence[Any]]

_SPLIT_HELP = "give the guard split=, a function of (batch, n) that returns a list of n smaller batches"


def split_batch(batch: Any, micro_batches: int) -> list[Any]:
    """Split a batch along its first dimension into micro-batches whose sizes differ by at most one sample.

    Tensors are split, and so are lists with one plain value per sample; anything else goes into every micro-batch
    unchanged. The micro-batches share the batch's memory.

    Raises:
        UsageError: the tensors have different numbers of rows, or there are fewer samples than micro-batches.
    """
    return split_samples(batch, count_samples(batch), micro_batches)


def split_samples(batch: Any, samples: int, micro_batches: int) -> list[Any]:
    """Split a batch with a known number of samples into micro-batches, as `split_batch` does."""
    if not 1 <= micro_batches <= samples:
        raise UsageError(f"{samples} samples can't be split into {micro_batches} micro-batches", "request fewer")
    if micro_batches == 1:
        return [batch]
    return _split_value(batch, samples, micro_batch_sizes(samples, micro_batches))


def micro_batch_sizes(samples: int, micro_batches: int) -> list[int]:
    """Return the samples of each micro-batch, larger ones first, so that the first one shows whether it fits."""
    size, rest = divmod(samples, micro_batches)
    return [size + 1] * rest + [size] * (micro_batches - rest)


def count_samples(batch: Any, *, ragged: bool = False) -> int:
    """Count the samples of a batch: the rows that all its tensors share, or those of the first tensor if ragged.

    Raises:
        UsageError: the batch has no tensor, or its tensors have different numbers of rows.
    """
    rows = [tensor.shape[0] for tensor in tensors_in(batch) if tensor.dim() > 0]
    if not rows:
        raise UsageError("the batch has no tensor with a first dimension", "pass tensors with one row per sample")
    if not ragged and len(set(rows)) > 1:
        shown = " and ".join(str(count) for count in sorted(set(rows))[:4])
        raise UsageError(f"the batch's tensors have {shown} rows, so it can't be split by samples", _SPLIT_HELP)
    return rows[0]


def write_versions(batch: Any) -> list[int]:
    """Return how often each tensor was written in place, as far as torch counts it."""
    return [tensor._version for tensor in tensors_in(batch) if not tensor.is_inference()]  # noqa: SLF001  no public name


def move(value: Any, device: torch.device) -> Any:
    """Move a micro-batch to the device; containers are copied, tensors that are there already are not."""
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device, non_blocking=True)
    if isinstance(value, (list, tuple)):
        return _like(value, [move(item, device) for item in value])
    if isinstance(value, Mapping):  # a tokenizer's BatchEncoding becomes a plain dict
        return {name: move(item, device) for name, item in value.items()}
    return value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield every tensor of a nested structure."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)


def _like(original: Any, values: list[Any]) -> Any:
    """Build a sequence of the original's type; a named tuple takes its values as arguments."""
    kind = type(original)
    if kind is list:
        return values
    if kind is tuple:
        return tuple(values)
    return kind(*values) if hasattr(original, "_fields") else kind(values)


def _split_value(value: Any, samples: int, sizes: list[int]) -> list[Any]:
    """Return the part of a value for each micro-batch."""
    if isinstance(value, Tensor):
        return list(torch.split_with_sizes(value, sizes)) if value.dim() > 0 else [value] * len(sizes)
    if isinstance(value, (list, tuple)) and value:
        if len(value) == samples and next(tensors_in(value), None) is None:  # file names, for example
            ends = itertools.accumulate(sizes)
            return [value[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        columns = [_split_value(item, samples, sizes) for item in value]
        return [_like(value, list(row)) for row in zip(*columns, strict=True)]
    if isinstance(value, Mapping) and value:
        columns = [_split_value(item, samples, sizes) for item in value.values()]
        return [dict(zip(value, row, strict=True)) for row in zip(*columns, strict=True)]
    return [value] * len(sizes)
