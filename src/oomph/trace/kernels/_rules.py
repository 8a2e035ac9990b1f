"""Building blocks of the rules for memory that kernels allocate within one operation.

A rule receives an operation's arguments and results and yields allocations and frees in order: copies of arguments that
a kernel needs contiguous, results, workspaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class AllocateResult:
    """Allocate a result of the operation.

    Attributes:
        index: which result.
        size: bytes of its storage if CUDA's kernel allocates more than the result needs, else 0.
    """

    index: int
    size: int = 0


@dataclass(frozen=True)
class AllocateTemporary:
    """Allocate temporary memory, freed at once or (`hold`) at the end of the operation.

    Attributes:
        size: bytes.
        hold: True to keep it until the end of the operation.
        workspace: True for a library's workspace, False for a copy.
        optional: True if the library falls back to another algorithm when the allocation fails.
    """

    size: int
    hold: bool = False
    workspace: bool = True
    optional: bool = False


@dataclass(frozen=True)
class FreeTemporaries:
    """Free this number of held temporaries, oldest first."""

    count: int


RuleStep = AllocateResult | AllocateTemporary | FreeTemporaries


def nbytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor's elements."""
    return tensor.numel() * tensor.element_size()


def layout_of(tensor: Tensor) -> torch.memory_format:
    """Return the memory format that a kernel gives its results: channels_last if the tensor has it."""
    for dims, layout in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dims and tensor.is_contiguous(memory_format=layout) and not tensor.is_contiguous():
            return layout
    return torch.contiguous_format


def held_copy(tensor: Tensor) -> AllocateTemporary:
    """Return the allocation of a copy of a tensor that lasts until the end of the operation."""
    return AllocateTemporary(nbytes(tensor), hold=True, workspace=False)


def contiguous_copy(tensor: Tensor | None, layout: torch.memory_format = torch.contiguous_format) -> Iterator[RuleStep]:
    """Yield the copy that a kernel makes of an argument that is not contiguous."""
    if tensor is not None and not tensor.is_contiguous(memory_format=layout):
        yield held_copy(tensor)
