"""Packed sequences: the samples of a padded batch without the padding, as recurrent layers take them.

torch's functions read the lengths. Here the lengths are the known ones or, if they depend on data, the full ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from ._known_values import known, set_known
from ._value_tracker import ValueTracker

_FULL_LENGTH = "every packed sequence has its full length"


class _Pack(torch.autograd.Function):
    """Allocates the packed sequence, and in backward the gradient of the padded one."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, tokens: int) -> Tensor:
        ctx.shape = padded.shape
        return padded.new_empty(tokens, *padded.shape[2:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.new_zeros(ctx.shape), None


class _Pad(torch.autograd.Function):
    """Allocates the padded sequence, and in backward the gradient of the packed one."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, shape: tuple[int, ...]) -> Tensor:
        ctx.shape = data.shape
        return data.new_zeros(shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.new_empty(ctx.shape), None


def pack_padded(values: ValueTracker, padded: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:  # noqa: FBT001
    """Replace `torch._pack_padded_sequence`."""
    count, steps = padded.shape[:2] if batch_first else (padded.shape[1], padded.shape[0])
    with no_dispatch():
        if known(lengths) is not None:
            sizes = values.read_values(lengths).clamp(1, steps)
        else:
            values.guess(_FULL_LENGTH)
            sizes = torch.full((count,), steps)
        batch_sizes = (sizes[None, :] > torch.arange(int(sizes.max()))[:, None]).sum(1)
        tokens = int(sizes.sum())
    fake_sizes = torch.empty(batch_sizes.shape, dtype=torch.int64)
    set_known(fake_sizes, batch_sizes)
    return _Pack.apply(padded, tokens), fake_sizes  # type: ignore[no-untyped-call]


def pad_packed(
    values: ValueTracker,
    data: Tensor,
    batch_sizes: Tensor,
    batch_first: bool,  # noqa: FBT001
    padding_value: float,
    total_length: int,
) -> tuple[Tensor, Tensor]:
    """Replace `torch._pad_packed_sequence`."""
    del padding_value
    with no_dispatch():
        sizes = _batch_sizes(values, data, batch_sizes)
        lengths = (sizes[:, None] > torch.arange(int(sizes[0]))[None, :]).sum(0)
    count, steps = int(sizes[0]), max(len(sizes), total_length)
    shape = (count, steps) if batch_first else (steps, count)
    fake_lengths = torch.empty(lengths.shape, dtype=torch.int64)
    set_known(fake_lengths, lengths)
    return _Pad.apply(data, (*shape, *data.shape[1:])), fake_lengths  # type: ignore[no-untyped-call]


def _batch_sizes(values: ValueTracker, data: Tensor, batch_sizes: Tensor) -> Tensor:
    """Return the number of sequences at each step; even numbers if they are unknown."""
    value = known(batch_sizes)
    if value is not None:
        return value.at(0)
    values.guess(_FULL_LENGTH)
    return torch.full((batch_sizes.shape[0],), max(data.shape[0] // batch_sizes.shape[0], 1))


def run_packed(function: Callable[..., Any], kind: str, data: Tensor, *args: Any) -> Any:
    """Run a recurrent layer on a packed sequence as on a padded one of as many tokens; pass other calls on."""
    is_packed = isinstance(args[0], Tensor) and isinstance(args[1], (Tensor, list, tuple)) and len(args) == 8  # noqa: PLR2004
    if kind != "lstm":
        is_packed = is_packed and isinstance(args[1], Tensor)
    if not is_packed:
        return function(data, *args)
    states, *options = args[1:]
    count = (states if isinstance(states, Tensor) else states[0]).shape[1]
    steps, rest = divmod(data.shape[0], count)
    padded = data[: steps * count].view(steps, count, data.shape[1])
    out, *last = function(padded, states, *options, False)
    flat = out.reshape(steps * count, out.shape[2])
    return torch.cat((flat, flat[:rest])) if rest else flat, *last
