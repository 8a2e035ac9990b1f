"""Details of one out-of-memory error, derived from the numbers in its message, with the steps that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..units import GIB, MIB, format_size
from ._causes import CAUSES
from ._kinds import FailureKind

Detail = tuple[str, tuple[str, ...]]  # a sentence, and the steps that follow from it
Numbers = Mapping[str, float]

_ALLOCATOR_KINDS = {FailureKind.CUDA_OOM, FailureKind.HIP_OOM, FailureKind.XPU_OOM, FailureKind.MPS_OOM}
_HOST_KINDS = {FailureKind.CPU_OOM, FailureKind.MEMORY_ERROR, FailureKind.SHM_FULL}
# Unused reserved memory is reported from this size on, and from this fraction of the card.
_MIN_UNALLOCATED_BYTES, _MIN_UNALLOCATED_FRACTION = 256 * MIB, 0.04
# Memory of other processes is reported from this size on: desktops and drivers use less.
_MIN_OTHERS_BYTES = GIB // 2
# torch rounds the sizes that it prints, so only more than this factor of the capacity is a spill.
_SPILL_FACTOR = 1.01
_MILLISECONDS = 1000  # per second


def details_and_advice(kind: FailureKind, numbers: Numbers) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return sentences about a failure, and the steps that follow from them."""
    details = list(_details(kind, numbers))
    return tuple(sentence for sentence, _ in details), tuple(step for _, steps in details for step in steps)


def _details(kind: FailureKind, numbers: Numbers) -> Iterator[Detail]:
    if kind in _ALLOCATOR_KINDS:
        yield from _allocator_details(numbers)
    elif kind in _HOST_KINDS and "requested" in numbers:
        yield f"It requested {format_size(numbers['requested'])} in one block.", ()
    elif kind is FailureKind.OOM_KILL and "rss" in numbers:
        yield f"It used {format_size(numbers['rss'])} of RAM when it was killed.", ()
    elif kind is FailureKind.RANK_TIMEOUT and "milliseconds" in numbers:
        yield f"It had waited for {numbers['milliseconds'] / _MILLISECONDS:.0f} seconds.", ()


def _allocator_details(numbers: Numbers) -> Iterator[Detail]:
    yield from _request(numbers)
    yield from _oversized_request(numbers)
    yield from _spill(numbers)
    yield from _other_processes(numbers)
    yield from _memory_cap(numbers)
    yield from _fragmentation(numbers)


def _request(numbers: Numbers) -> Iterator[Detail]:
    if "requested" not in numbers:
        return
    sentence = f"It requested {format_size(numbers['requested'])}"
    if "free" in numbers:
        sentence += f" with {format_size(numbers['free'])} free"
        sentence += f" of {format_size(numbers['capacity'])}" if "capacity" in numbers else ""
    elif "capacity" in numbers:
        sentence += f" on a GPU with {format_size(numbers['capacity'])}"
    if "allocated" in numbers:
        sentence += f"; its tensors used {format_size(numbers['allocated'])}"
    yield f"{sentence}.", ()


def _oversized_request(numbers: Numbers) -> Iterator[Detail]:
    requested, capacity = numbers.get("requested", 0), numbers.get("capacity")
    if capacity and requested > capacity:
        yield (
            "This single tensor is larger than the whole GPU: freeing memory doesn't help.",
            (
                (
                    "Find the operation in the traceback, such as an attention matrix, pairwise distances or an image "
                    "at full size, and compute it in chunks."
                ),
            ),
        )


def _spill(numbers: Numbers) -> Iterator[Detail]:
    allocated, capacity = numbers.get("allocated", 0), numbers.get("capacity")
    if capacity and allocated > capacity * _SPILL_FACTOR:
        yield (
            (
                f"{format_size(allocated - capacity)} more than the card has is allocated: the Windows driver had "
                "spilled it into RAM, and training was slow long before it failed."
            ),
            CAUSES[FailureKind.SPILL].fix[:2],
        )


def _other_processes(numbers: Numbers) -> Iterator[Detail]:
    others, capacity = numbers.get("others", 0), numbers.get("capacity", 0)
    if _had_enough_free(numbers):
        return
    if others >= max(_MIN_OTHERS_BYTES, capacity * 0.02):
        count, pid = int(numbers["other_count"]), int(numbers["other_pid"])
        processes = f"process {pid}" if count == 1 else f"{count} other processes (the largest is {pid})"
        yield (
            f"{format_size(others)} of the GPU is used by {processes}.",
            (
                f"Stop process {pid}, wait for it, or use another GPU (CUDA_VISIBLE_DEVICES). See who started it:",
                f"$ ps -o pid,user,etime,args -p {pid}",
            ),
        )
    elif {"process", "capacity", "free"} <= numbers.keys():
        hidden = capacity - numbers["free"] - numbers["process"] - others
        if hidden >= max(_MIN_OTHERS_BYTES, capacity * 0.05):
            yield (
                f"{format_size(hidden)} of the GPU is used by processes that are not visible from here.",
                CAUSES[FailureKind.OTHER_PROCESS].fix,
            )


def _had_enough_free(numbers: Numbers) -> bool:
    """Return True if the GPU had far more free memory than was requested."""
    requested, free = numbers.get("requested"), numbers.get("free")
    if requested is None or free is None:
        return False
    return free - requested > max(GIB, numbers.get("capacity", 0) * 0.05)


def _memory_cap(numbers: Numbers) -> Iterator[Detail]:
    allowed = numbers.get("allowed")
    if allowed is not None and "capacity" in numbers:
        yield (
            f"The process may use only {format_size(allowed)} of {format_size(numbers['capacity'])}.",
            CAUSES[FailureKind.MEMORY_CAP].fix,
        )
    elif _had_enough_free(numbers):
        yield (
            (
                "More memory was free than it requested: a cap applies to this process, or the driver can't allocate "
                "all the memory that it reports as free (Windows, WSL, MIG)."
            ),
            (),
        )


def _fragmentation(numbers: Numbers) -> Iterator[Detail]:
    unallocated, capacity = numbers.get("unallocated", 0), numbers.get("capacity", 0)
    is_large = unallocated >= max(_MIN_UNALLOCATED_BYTES, capacity * _MIN_UNALLOCATED_FRACTION)
    if is_large and unallocated >= numbers.get("requested", 0) / 2:
        yield (
            f"{format_size(unallocated)} is reserved but unused, in blocks that are too small (fragmentation).",
            CAUSES[FailureKind.FRAGMENTATION].fix[:2],
        )
