"""Details of one failure, derived from the numbers in its message, with the advice that follows from them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..units import GIB, KIB, MIB, TIB, format_size
from . import _common_advice as common
from ._growth import find_growth
from ._kinds import Advice, FailureKind
from ._message_numbers import MessageNumbers
from ._situation import Phase, Situation, Speaker, System
from .causes import CAUSES

_ALLOCATOR_KINDS = {
    FailureKind.CUDA_OOM,
    FailureKind.HIP_OOM,
    FailureKind.XPU_OOM,
    FailureKind.MPS_OOM,
    FailureKind.DRIVER_OOM,
    FailureKind.FRAMEWORK_OOM,
}
_HOST_KINDS = {FailureKind.CPU_OOM, FailureKind.MEMORY_ERROR, FailureKind.BAD_ALLOC, FailureKind.ENOMEM}
_KILLS = {FailureKind.OOM_KILL, FailureKind.SCHEDULER_KILL, FailureKind.WORKER_KILLED}
# Unused reserved memory is reported from this size on, and from this fraction of the card.
_MIN_UNALLOCATED_BYTES, _MIN_UNALLOCATED_FRACTION = 256 * MIB, 0.04
# Memory of listed processes is reported from this size and fraction on: desktops and drivers use less.
_MIN_LISTED_BYTES, _MIN_LISTED_FRACTION = GIB // 2, 0.02
# Memory that is only a difference contains the CUDA context of this process.
_MIN_HIDDEN_BYTES, _MIN_HIDDEN_FRACTION = 3 * GIB // 2, 0.08
# What a process uses besides torch's allocator contains its CUDA context, and buffers of NCCL and cuBLAS.
_MIN_OUTSIDE_BYTES, _MIN_OUTSIDE_FRACTION = 2 * GIB, 0.08
_MIN_HIDDEN_BESIDE_PROCESS_BYTES, _MIN_HIDDEN_BESIDE_PROCESS_FRACTION = GIB // 2, 0.05
# torch rounds the sizes that it prints, so only more than this factor of the capacity is a spill.
_SPILL_FACTOR = 1.01
# No GPU and no common machine has this much memory.
_MAX_GPU_BYTES, _MAX_RAM_BYTES = 200 * GIB, TIB
# Users of other libraries can't change the operation that needs too much.
_WITH_OWN_CODE = {Speaker.PYTORCH, Speaker.LIGHTNING, Speaker.RAY, Speaker.CUPY, Speaker.UNKNOWN}
_MILLISECONDS = 1000  # per second
_SINGLE_CAUSES = {Phase.EVALUATING, Phase.CREATING_STATES, Phase.SAVING, Phase.LOADING}
_SMALL_FRACTION = 0.25  # of the GPU: a program that needs less fits beside others
_MIN_LARGE_BLOCK = 64 * MIB
_MIN_SHARE = 0.05  # of the GPU, below which a server can't start

RAISE_FRACTION = Advice(
    "Raise the fraction that this process may use:", "torch.cuda.set_per_process_memory_fraction(1.0)"
)
RAISE_POOL_LIMIT = Advice(
    "Raise the limit of the pool (or CUPY_GPU_MEMORY_LIMIT):",
    "cupy.get_default_memory_pool().set_limit(fraction=0.95)",
)
ONE_GPU_PER_RANK = Advice(
    "Give each rank its own GPU, and load checkpoints to the CPU:",
    'torch.cuda.set_device(int(os.environ["LOCAL_RANK"])); torch.load(path, map_location="cpu")',
)
CAP_BELOW_CARD = Advice(
    "Cap torch below the card's memory, so that it fails or splits instead of slowing down:",
    "torch.cuda.set_per_process_memory_fraction(0.9)",
)
NO_SYSMEM_FALLBACK = Advice(
    'In the NVIDIA control panel, set "CUDA - Sysmem Fallback Policy" to "Prefer No Sysmem Fallback".'
)
NOTHING_ELSE_ON_GPU = Advice(
    "Find what else in this process uses the GPU, and keep it off: TensorFlow and JAX (JAX_PLATFORMS=cpu) take most of "
    "it at their start.",
    'tf.config.set_visible_devices([], "GPU")',
)
IN_CHUNKS = Advice(
    "Find the operation in the traceback, such as an attention matrix, pairwise distances or an image at full size, "
    "and compute it in chunks:",
    "y = torch.cat([operation(part) for part in x.split(1024)])",
)


@dataclass(frozen=True)
class Detail:
    """A sentence about a failure, and the advice that follows from it.

    Attributes:
        sentence: What is known.
        advice: What follows from it, best first.
        excludes_batches: True if smaller batches don't help.
        is_whole_reason: True if nothing but this has to change.
    """

    sentence: str
    advice: tuple[Advice, ...] = ()
    excludes_batches: bool = False
    is_whole_reason: bool = False


def derive_details(kind: FailureKind, numbers: MessageNumbers, situation: Situation) -> tuple[Detail, ...]:
    """Return what follows from the numbers of a failure, most important first."""
    return tuple(_details(kind, numbers, situation))


def growth_details(kind: FailureKind, surroundings: str) -> tuple[Detail, ...]:
    """Return a detail about memory that grew until it ran out; empty if the lines before the failure show none."""
    is_host = kind in _HOST_KINDS or kind in _KILLS
    if not is_host and kind not in _ALLOCATOR_KINDS:
        return ()
    growth = find_growth(surroundings)
    if growth is None or growth.is_host is not is_host:
        return ()
    what = "RAM" if is_host else "Memory"
    leak = CAUSES[FailureKind.HOST_LEAK if is_host else FailureKind.DEVICE_LEAK]
    sizes = f"from {format_size(growth.first)} to {format_size(growth.last)}"
    return (Detail(f"{what} grew steadily before it, {sizes}: something keeps objects alive.", leak.advice[:2]),)


def is_impossible(kind: FailureKind, numbers: MessageNumbers) -> bool:
    """Return True if one request is larger than any memory, so that a shape or dtype must be wrong."""
    requested = numbers.requested or 0
    if kind in _ALLOCATOR_KINDS:
        return requested > _MAX_GPU_BYTES
    return kind in _HOST_KINDS and requested > _MAX_RAM_BYTES


def _details(kind: FailureKind, numbers: MessageNumbers, situation: Situation) -> Iterator[Detail]:
    if kind in _ALLOCATOR_KINDS:
        yield from _allocator_details(numbers, situation)
    elif kind in _HOST_KINDS or kind is FailureKind.SHM_FULL or kind is FailureKind.IMPOSSIBLE_SIZE:
        yield from _one_block(numbers)
    elif kind in _KILLS:
        yield from _kill(numbers)
    elif kind is FailureKind.RANK_TIMEOUT and numbers.milliseconds is not None:
        yield Detail(f"It had waited for {numbers.milliseconds / _MILLISECONDS:.0f} seconds.")
    if situation.phase is Phase.SAVING and (kind in _ALLOCATOR_KINDS or kind in _KILLS or kind in _HOST_KINDS):
        yield Detail("It happened while the model was saved: gathering or copying all weights needs extra memory.")


def _allocator_details(numbers: MessageNumbers, situation: Situation) -> Iterator[Detail]:
    yield from _request(numbers)
    yield from _oversized_request(numbers, situation)
    yield from _spill(numbers)
    yield from _outside_torch(numbers)
    yield from _other_processes(numbers, situation)
    yield from _memory_cap(numbers, situation)
    yield from _fragmentation(numbers, situation)
    yield from _shorter_sequences(numbers)
    yield from _smaller_share(numbers, situation)


def _request(numbers: MessageNumbers) -> Iterator[Detail]:
    if numbers.requested is None:
        return
    sentence = f"The program requested {format_size(numbers.requested)}"
    if numbers.free is not None:
        sentence += f" with {format_size(numbers.free)} free"
        sentence += f" of {format_size(numbers.capacity)}" if numbers.capacity is not None else ""
    elif numbers.capacity is not None:
        sentence += f" on a GPU with {format_size(numbers.capacity)}"
    if numbers.allocated is not None:
        sentence += f"; its tensors used {format_size(numbers.allocated)}"
    yield Detail(f"{sentence}.")


def _oversized_request(numbers: MessageNumbers, situation: Situation) -> Iterator[Detail]:
    if numbers.capacity is not None and (numbers.requested or 0) > numbers.capacity:
        advice = (IN_CHUNKS,) if situation.speaker in _WITH_OWN_CODE else ()
        yield Detail("This single tensor is larger than the whole GPU: freeing memory doesn't help.", advice)


def _spill(numbers: MessageNumbers) -> Iterator[Detail]:
    allocated, capacity = numbers.allocated or 0, numbers.capacity
    if capacity and allocated > capacity * _SPILL_FACTOR:
        yield Detail(
            f"{format_size(allocated - capacity)} more than the card has is allocated: the Windows driver had "
            "spilled it into RAM, and training was slow long before it failed.",
            (CAP_BELOW_CARD, NO_SYSMEM_FALLBACK),
        )


def _outside_torch(numbers: MessageNumbers) -> Iterator[Detail]:
    outside, capacity = (numbers.process or 0) - (numbers.reserved or 0), numbers.capacity or 0
    if numbers.reserved is not None and outside >= max(_MIN_OUTSIDE_BYTES, capacity * _MIN_OUTSIDE_FRACTION):
        yield Detail(
            f"{format_size(outside)} of the GPU is used by this process, but not by torch.", (NOTHING_ELSE_ON_GPU,)
        )


def _other_processes(numbers: MessageNumbers, situation: Situation) -> Iterator[Detail]:
    if _had_enough_free(numbers):
        return
    if numbers.rank and numbers.device == 0 and numbers.other_count:
        yield Detail(
            f"Rank {int(numbers.rank)} uses GPU 0, as other processes do: the ranks of this job share it.",
            (ONE_GPU_PER_RANK,),
        )
        return
    listed, capacity, held = numbers.others or 0, numbers.capacity or 0, numbers.held_by_others or 0
    is_small = (numbers.allocated or capacity) + (numbers.requested or 0) < capacity * _SMALL_FRACTION
    if listed and numbers.other_pid is not None and listed >= max(_MIN_LISTED_BYTES, capacity * _MIN_LISTED_FRACTION):
        count, pid = int(numbers.other_count or 1), int(numbers.other_pid)
        processes = f"process {pid}" if count == 1 else f"{count} other processes (the largest is {pid})"
        sentence = f"{format_size(listed)} of the GPU is used by {processes}."
        yield Detail(sentence, (_stop_process(pid, situation),), is_whole_reason=is_small)
        held -= listed
    if held >= _min_hidden_bytes(numbers):
        what = "processes that are not visible from here" if numbers.process is not None else "other processes"
        sentence = f"{format_size(held)} of the GPU is used by {what}."
        yield Detail(sentence, other_process_advice(situation), is_whole_reason=is_small)


def _min_hidden_bytes(numbers: MessageNumbers) -> float:
    capacity = numbers.capacity or 0
    if numbers.process is not None:
        return max(_MIN_HIDDEN_BESIDE_PROCESS_BYTES, capacity * _MIN_HIDDEN_BESIDE_PROCESS_FRACTION)
    return max(_MIN_HIDDEN_BYTES, capacity * _MIN_HIDDEN_FRACTION)


def _stop_process(pid: int, situation: Situation) -> Advice:
    command = f"$ ps -o pid,user,etime,args -p {pid}"
    if situation.system is System.WINDOWS:
        command = f'$ tasklist /FI "PID eq {pid}"'
    return Advice(
        f"Stop process {pid}, wait for it, or use another GPU (CUDA_VISIBLE_DEVICES). See who started it:", command
    )


def other_process_advice(situation: Situation) -> tuple[Advice, ...]:
    """Return advice about memory that other processes hold."""
    if situation.system is System.MACOS:
        return (Advice("Close other programs: they use the same memory."),)
    return (
        Advice("Find the other processes on the GPU, and stop them or wait for them:", "$ nvidia-smi"),
        Advice("Or use another GPU:", "$ export CUDA_VISIBLE_DEVICES=1")
        if situation.has_shell_tools
        else Advice("Or use another GPU:", "$ set CUDA_VISIBLE_DEVICES=1"),
    )


def _had_enough_free(numbers: MessageNumbers) -> bool:
    """Return True if the GPU had far more free memory than was requested."""
    if numbers.requested is None or numbers.free is None:
        return False
    return numbers.free - numbers.requested > max(GIB, (numbers.capacity or 0) * 0.05)


def _memory_cap(numbers: MessageNumbers, situation: Situation) -> Iterator[Detail]:
    if numbers.allowed is not None and numbers.capacity is not None:
        yield Detail(
            f"The process may use only {format_size(numbers.allowed)} of {format_size(numbers.capacity)}.",
            (RAISE_FRACTION,),
        )
    elif numbers.allowed is not None and situation.speaker is Speaker.CUPY:
        yield Detail(f"CuPy's pool may use only {format_size(numbers.allowed)}.", (RAISE_POOL_LIMIT,))
    elif numbers.allowed is not None and situation.speaker is Speaker.MLX:
        yield Detail(f"The largest buffer of this GPU is {format_size(numbers.allowed)}.")
    elif _had_enough_free(numbers):
        assert numbers.free is not None and numbers.requested is not None  # noqa: PT018, S101  for the type checker
        size = f"{format_size(numbers.free)} was free and {format_size(numbers.requested)} was requested"
        yield Detail(
            f"More memory was free than it requested ({size}): a cap applies to this process, or the driver can't "
            "allocate all the memory that it reports as free (Windows with a small page file, WSL, MIG).",
            _uncap_advice(situation),
        )


def _uncap_advice(situation: Situation) -> tuple[Advice, ...]:
    if situation.system in {System.WINDOWS, System.WSL}:
        return (
            *((common.PAGE_FILE,) if situation.system is System.WINDOWS else ()),
            Advice(
                "Windows reserves part of the card. Close programs that use the GPU, and leave a tenth of it unused:",
                "torch.cuda.set_per_process_memory_fraction(0.9)",
            ),
        )
    return (
        Advice(
            "Look for a cap on this process: a memory fraction in the code, a MIG slice, a vGPU or a container limit:",
            "$ grep -rn memory_fraction . ; nvidia-smi -L",
        ),
    )


def _fragmentation(numbers: MessageNumbers, situation: Situation) -> Iterator[Detail]:
    if situation.is_ancient_torch:
        return
    unallocated, capacity = numbers.unallocated or 0, numbers.capacity or 0
    is_large = unallocated >= max(_MIN_UNALLOCATED_BYTES, capacity * _MIN_UNALLOCATED_FRACTION)
    if is_large and unallocated >= (numbers.requested or 0) / 2:
        advice = common.EXPANDABLE_SEGMENTS
        if not situation.has_expandable_segments:
            command = "export" if situation.has_shell_tools else "set"
            advice = Advice(
                "Limit the size of blocks that are split (expandable segments need torch 2.1, and no Windows or WSL):",
                f"$ {command} PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128",
            )
        # What the traceback shows needs its memory in one piece, however much is in small ones.
        is_known = situation.is_phase_certain and situation.phase in _SINGLE_CAUSES
        yield Detail(
            f"{format_size(unallocated)} is reserved but unused, in blocks that are too small (fragmentation).",
            () if is_known else (advice,),
        )


def _shorter_sequences(numbers: MessageNumbers) -> Iterator[Detail]:
    if numbers.max_tokens is not None:
        length = int(numbers.max_tokens)
        yield Detail(
            f"The KV cache has space for sequences of {length} tokens.",
            (Advice("Limit the length of sequences to what fits:", f"$ vllm serve MODEL --max-model-len {length}"),),
        )


def _smaller_share(numbers: MessageNumbers, situation: Situation) -> Iterator[Detail]:
    """Yield the share of the GPU that a server can have, where others use the rest."""
    share = (numbers.free or 0) / (numbers.capacity or math.inf)
    if situation.speaker is Speaker.VLLM and numbers.reserved == 0 and share >= _MIN_SHARE:
        fitting = math.floor(share * 100) / 100 - 0.01
        yield Detail(
            f"{share:.0%} of the GPU is free.",
            (
                Advice(
                    "Or let vLLM use only what is free, if the model fits into it:",
                    f"$ vllm serve MODEL --gpu-memory-utilization {fitting:.2f}",
                ),
            ),
        )


def _one_block(numbers: MessageNumbers) -> Iterator[Detail]:
    if numbers.requested is None:
        return
    shape = f": shape {numbers.shape}{f' of {numbers.dtype}' if numbers.dtype else ''}" if numbers.shape else ""
    where = " in one block" if numbers.requested >= _MIN_LARGE_BLOCK else ""
    yield Detail(f"The program requested {format_size(numbers.requested)}{where}{shape}.")


def _kill(numbers: MessageNumbers) -> Iterator[Detail]:
    if numbers.rss is not None:
        yield Detail(f"It used {format_size(numbers.rss)} of RAM when it was killed.")
    if numbers.used is not None and numbers.limit is not None:
        yield Detail(f"{format_size(numbers.used)} of {format_size(numbers.limit)} of RAM was in use.")
    elif numbers.limit is not None and numbers.limit > KIB:
        yield Detail(f"The limit is {format_size(numbers.limit)} of RAM.")
    if numbers.ram_percent is not None:
        yield Detail(f"RAM was {numbers.ram_percent:g}% full shortly before.")
