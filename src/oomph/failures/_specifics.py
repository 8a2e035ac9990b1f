"""What is special about one out-of-memory: read off its numbers, in sentences, with what to do about that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..units import GIB, MIB, format_size
from ._kind import FailureKind
from ._table import CAUSES

Specific = tuple[str, tuple[str, ...]]

_ALLOCATORS = {FailureKind.CUDA_OOM, FailureKind.HIP_OOM, FailureKind.XPU_OOM, FailureKind.MPS_OOM}
# From here on reserved and unused memory is worth a word: a share of the card, and never a trifle.
_HOLES_SHARE, _HOLES = 0.04, 256 * MIB
# What a desktop or a driver holds beside a run is no other process to speak of.
_OTHERS = GIB // 2
# Torch rounds what it prints; a spill is more than that.
_BEYOND_CARD = 1.01
_SECONDS = 1000


def specifics(kind: FailureKind, figures: Mapping[str, float]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences on one failure, and the steps that follow from them."""
    found = list(_specifics(kind, figures))
    return tuple(words for words, _ in found), tuple(step for _, steps in found for step in steps)


def _specifics(kind: FailureKind, figures: Mapping[str, float]) -> Iterator[Specific]:
    if kind in _ALLOCATORS:
        yield from _allocator(figures)
    elif kind in {FailureKind.CPU_OOM, FailureKind.MEMORY_ERROR, FailureKind.SHM_FULL} and "asked" in figures:
        yield f"It asked for {format_size(figures['asked'])} in one piece.", ()
    elif kind is FailureKind.HOST_KILL and "resident" in figures:
        yield f"It held {format_size(figures['resident'])} of RAM when it was killed.", ()
    elif kind is FailureKind.RANK_TIMEOUT and "milliseconds" in figures:
        yield f"It had waited for {figures['milliseconds'] / _SECONDS:.0f} seconds.", ()


def _allocator(figures: Mapping[str, float]) -> Iterator[Specific]:
    if line := _asked(figures):
        yield line, ()
    yield from _one_piece(figures)
    yield from _spilled(figures)
    yield from _others(figures)
    yield from _capped(figures)
    yield from _holes(figures)


def _asked(figures: Mapping[str, float]) -> str | None:
    if "asked" not in figures:
        return None
    line = f"It asked for {format_size(figures['asked'])}"
    if "free" in figures:
        line += f" with {format_size(figures['free'])} free"
        line += f" of {format_size(figures['capacity'])}" if "capacity" in figures else ""
    elif "capacity" in figures:
        line += f" on a GPU of {format_size(figures['capacity'])}"
    if "allocated" in figures:
        line += f"; its tensors held {format_size(figures['allocated'])}"
    return line + "."


def _one_piece(figures: Mapping[str, float]) -> Iterator[Specific]:
    asked, capacity = figures.get("asked", 0), figures.get("capacity")
    if capacity and asked > capacity:
        yield (
            "That one tensor is larger than the whole GPU: no freeing helps.",
            (
                (
                    "Find the operation in the traceback: an attention matrix, a distance of all pairs, or an image at "
                    "full size; compute it in chunks."
                ),
            ),
        )


def _spilled(figures: Mapping[str, float]) -> Iterator[Specific]:
    allocated, capacity = figures.get("allocated", 0), figures.get("capacity")
    if capacity and allocated > capacity * _BEYOND_CARD:
        yield (
            (
                f"{format_size(allocated - capacity)} more than the card has is allocated: it had spilled into the "
                "computer's RAM, as the Windows driver does, and was slow long before it failed."
            ),
            CAUSES[FailureKind.SPILL].fix[:2],
        )


def _others(figures: Mapping[str, float]) -> Iterator[Specific]:
    others, capacity = figures.get("others", 0), figures.get("capacity", 0)
    if _was_free(figures):
        return  # what others hold was not missing
    if others >= max(_OTHERS, capacity * 0.02):
        count, pid = int(figures["other_count"]), int(figures["other_pid"])
        who = f"process {pid}" if count == 1 else f"{count} other processes (the largest is {pid})"
        yield (
            f"{format_size(others)} of the GPU is held by {who}.",
            (
                f"End process {pid}, wait for it, or use another GPU (CUDA_VISIBLE_DEVICES); see whose it is:",
                f"$ ps -o pid,user,etime,args -p {pid}",
            ),
        )
    elif {"process", "capacity", "free"} <= figures.keys():
        hidden = capacity - figures["free"] - figures["process"] - others
        if hidden >= max(_OTHERS, capacity * 0.05):
            yield (
                f"{format_size(hidden)} of the GPU is held by processes that can't be seen from here.",
                CAUSES[FailureKind.OTHER_PROCESS].fix,
            )


def _was_free(figures: Mapping[str, float]) -> bool:
    """Whether the GPU had what was asked for, and plenty beside."""
    asked, free = figures.get("asked"), figures.get("free")
    return asked is not None and free is not None and free - asked > max(GIB, figures.get("capacity", 0) * 0.05)


def _capped(figures: Mapping[str, float]) -> Iterator[Specific]:
    allowed = figures.get("allowed")
    if allowed is not None and "capacity" in figures:
        yield (
            f"The process may use only {format_size(allowed)} of {format_size(figures['capacity'])}.",
            CAUSES[FailureKind.CAPPED].fix,
        )
    elif _was_free(figures):
        yield (
            (
                "More was free than it asked for: something caps this process, or the driver can't give out all that "
                "it calls free (Windows, WSL, a divided GPU)."
            ),
            (),
        )


def _holes(figures: Mapping[str, float]) -> Iterator[Specific]:
    holes, asked, capacity = figures.get("unallocated", 0), figures.get("asked", 0), figures.get("capacity", 0)
    if holes >= max(_HOLES, capacity * _HOLES_SHARE) and holes >= asked / 2:
        yield (
            f"{format_size(holes)} is reserved and unused, in pieces too small: fragmentation.",
            CAUSES[FailureKind.FRAGMENTATION].fix[:2],
        )
