"""Room on a GPU for what an update makes after its first write, found before it.

Memory that is taken and let go of stays with torch's allocator, so that who asks next gets it without fail. That is
certain in two ways: of small weights, where there is one block for all of them; of large ones, where the same tensors
were made twice in the same places, because then a third time ends there too.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..units import MIB

_FEW = 128 * MIB  # bytes for which one block is found easily
_SMALL = MIB  # the largest request that torch's allocator serves from small segments, cut by 512 bytes
_ROUND = 512
_TRIES = 4  # at making tensors in the same places as before
_CONFIGURATIONS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")

# Beneath torch.cuda.caching_allocator_alloc, a fifth of whose time they take; not there without CUDA.
_beneath: Any = torch._C  # noqa: SLF001  there are no public names for them
_this_device: Any = getattr(_beneath, "_cuda_getDevice", None)
_this_stream: Any = getattr(_beneath, "_cuda_getCurrentRawStream", None)
_take: Any = getattr(_beneath, "_cuda_cudaCachingAllocator_raw_alloc", None)
_let_go: Any = getattr(_beneath, "_cuda_cudaCachingAllocator_raw_delete", None)


class NoRoom(MemoryError):
    """Tensors come to lie in other places each time, so that nobody can say whether all of them will find one."""


class SmallRoom:
    """Room for tensors of few bytes.

    Args:
        device: the GPU.
        groups: the tensors that are alive together; those of one group are gone when the next one's are made.
    """

    def __init__(self, device: torch.device, groups: Iterable[Sequence[Tensor]]) -> None:
        self._device = device
        self._blocks = blocks_for([one.nbytes for one in group] for group in groups)
        self._is_beneath = device.type == "cuda" and None not in (_this_device, _this_stream, _take, _let_go)

    def find(self) -> None:
        """Make sure of it."""
        if self._is_beneath and _this_device() == self._device.index:
            self._find_beneath(_this_stream(self._device.index))
            return
        held = [torch.empty(size, dtype=torch.uint8, device=self._device) for size in self._blocks]
        del held

    def _find_beneath(self, stream: int) -> None:
        held: list[int] = []
        try:
            for size in self._blocks:
                held.append(_take(size, stream))  # noqa: PERF401  the next one may fail
        finally:
            for address in held:
                _let_go(address)


class LargeRoom:
    """Room for tensors of many bytes, which may lie anywhere.

    Args:
        groups: as those of a `SmallRoom`.
    """

    def __init__(self, groups: Iterable[Sequence[Tensor]]) -> None:
        self._groups = list(groups)

    def find(self) -> None:
        """Make sure of it.

        Raises:
            NoRoom: nobody can be.
        """
        before = self._make()
        for _ in range(_TRIES):
            places = self._make()
            if places == before:
                return
            before = places
        raise NoRoom("no room that is certain to be there again")

    def _make(self) -> list[int]:
        places: list[int] = []
        for group in self._groups:
            held = [torch.empty_like(one) for one in group if one.grad is not None]
            places += map(Tensor.data_ptr, held)
            del held
        return places


Room = SmallRoom | LargeRoom


def room_of(groups: Sequence[Sequence[Tensor]]) -> Room | None:
    """Room for tensors like those of each group, all of one device; None where nobody can say whether it is enough."""
    if sum(one.nbytes for group in groups for one in group) <= _FEW:
        return SmallRoom(next(one.device for group in groups for one in group), groups)
    if any(len({one.dtype for one in group}) > 1 for group in groups):
        return None  # torch goes type by type, in an order of its own
    return LargeRoom(groups)


def blocks_for(groups: Iterable[Sequence[int]]) -> list[int]:
    """Blocks that make room for tensors of these bytes, group by group, whatever else is free.

    Large tensors are cut from one block, which always has room for the rest of them. Small ones share blocks that can't
    be larger than one of them: of these, but for one that can still grow, no two stay less than half full, so that
    twice their sum and two more are enough.
    """
    large = small = 0
    for sizes in groups:
        rounded = [-(-size // _ROUND) * _ROUND for size in sizes]
        large = max(large, sum(size for size in rounded if size > _SMALL))
        small = max(small, sum(size for size in rounded if size <= _SMALL))
    blocks = [small] if small <= _SMALL else [_SMALL] * (-(-2 * small // _SMALL) + 2)
    return [size for size in (*blocks, large) if size]


@functools.cache
def is_kept() -> bool:
    """Whether what is let go of stays with torch's own allocator, which cuts and keeps it as it does by itself."""
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") or torch.cuda.get_allocator_backend() != "native":
        return False
    settings = ",".join(os.environ.get(name, "") for name in _CONFIGURATIONS)
    return {one.partition(":")[0].strip() for one in settings.split(",")} <= {"", "expandable_segments"}
