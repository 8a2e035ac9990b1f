"""Room on a GPU for what an update makes after its first write, found before it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence

import torch

from ..units import MIB

_SMALL = MIB  # the largest request that torch's allocator serves from small segments, cut by 512 bytes
_ROUND = 512
_CONFIGURATIONS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


class Room:
    """Room for tensors on a GPU.

    Args:
        device: the GPU.
        groups: the bytes of tensors that are alive together, in their order; those of one group are gone when the next
            one's are made.
    """

    def __init__(self, device: torch.device, groups: Iterable[Sequence[int]]) -> None:
        self._device, self._rounds = device, rounds_for(groups)

    def find(self) -> None:
        """Take it and let it go: the allocator keeps the blocks, and who asks next gets them without fail."""
        for sizes in self._rounds:
            held = [torch.empty(size, dtype=torch.uint8, device=self._device) for size in sizes]
            del held


def rounds_for(groups: Iterable[Sequence[int]]) -> list[list[int]]:
    """The blocks that make room for each of the groups, whatever else is free: taken together, round by round.

    Large tensors find the blocks that such ones have found before them, in the same order. Small ones share blocks, of
    which no two are less than half full: twice their sum and one more are enough, or one for all of them where it is a
    small one itself.
    """
    rounded = [[-(-size // _ROUND) * _ROUND for size in sizes] for sizes in groups]
    small = max((sum(size for size in sizes if size <= _SMALL) for sizes in rounded), default=0)
    rounds = [large for sizes in rounded if (large := [size for size in sizes if size > _SMALL])]
    if small:
        blocks = [small] if small <= _SMALL else [_SMALL] * (-(-2 * small // _SMALL) + 1)
        rounds = [[*blocks, *rounds[0]], *rounds[1:]] if rounds else [blocks]
    return rounds


@functools.cache
def is_kept() -> bool:
    """Whether what is let go of stays with torch's own allocator, in the sizes that it is known to have."""
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") or torch.cuda.get_allocator_backend() != "native":
        return False
    return not any("roundup_power2" in os.environ.get(name, "") for name in _CONFIGURATIONS)
