"""Windows and WSL, where the driver moves what doesn't fit into the computer's RAM instead of refusing it."""

from __future__ import annotations

import logging
import platform
from typing import NamedTuple

import torch

from ..units import MIB, format_size

_log = logging.getLogger("oomph")
_BELOW, _BELOW_SHARE = 256 * MIB, 0.03  # how far below all that is free the cap lies: whichever is more
_capped: set[int] = set()  # devices of which it was said


class Room(NamedTuple):
    """The memory of a GPU, in bytes: all of it, what is free, and what this process's allocator holds already."""

    total: int
    free: int
    reserved: int = 0


def fraction_below_spill(system: str, release: str, room: Room) -> float | None:
    """The share of a GPU that torch may take, so that it is refused before the driver spills; None if none does.

    Args:
        system: as `platform.system()` tells it.
        release: as `platform.release()` does; WSL is a Linux whose kernel is Microsoft's.
        room: of the GPU.
    """
    if system != "Windows" and "microsoft" not in release.lower():
        return None
    below = max(_BELOW, int(_BELOW_SHARE * room.total))
    return max(room.free + room.reserved - below, 0) / room.total


def cap_below_spill(device: torch.device, before: float) -> None:
    """Cap the allocator of a CUDA device where the driver would spill, unless somebody has capped it.

    Args:
        device: the GPU.
        before: the share that it may take now.
    """
    if before < 1:
        return
    free, total = torch.cuda.mem_get_info(device)
    room = Room(total, free, torch.cuda.memory_reserved(device))
    fraction = fraction_below_spill(platform.system(), platform.release(), room)
    if fraction is None:
        return
    torch.cuda.set_per_process_memory_fraction(fraction, device)
    if device.index not in _capped:
        _capped.add(device.index)
        _log.warning(
            "This driver moves what doesn't fit a GPU into RAM, and steps crawl: torch may take %s of %s here, and "
            "pieces are made smaller beyond that. Give budget= to choose for yourself.",
            format_size(fraction * total),
            format_size(total),
        )
