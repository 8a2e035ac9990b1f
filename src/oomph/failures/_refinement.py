"""Refinement of a kind by the text around it, the resource that ran out, and whether the text proves it."""

from __future__ import annotations

import re

from ._details import is_impossible
from ._kinds import FailureKind, Resource
from ._message_numbers import MessageNumbers
from ._situation import TORCH_SPEAKERS, Situation, Speaker, System
from .causes import CAUSES

_FULL_PERCENT = 98
_NEAR = 3000  # characters before a line that belong to its traceback
_CALLS = 800  # characters before a line with the innermost calls

# Shared memory: what NCCL, torch and multiprocessing's locks use has "no space left" when /dev/shm is full.
_SHM = re.compile(
    r"/dev/shm|\bshm\b|/torch_\d|nccl|NCCL|SemLock|multiprocessing/synchronize|_multiprocessing\.|shared_memory"  # noqa: S108  the system's
)
# Rows of `df`: every Linux machine has one for /dev/shm; and the flag that sets its size.
_SHM_ROW = re.compile(r"^(?:tmpfs|shm|none)\s.*?(?P<use>\d{1,3})%\s+/dev/shm\s*$|--shm-size[= ]\S+", re.MULTILINE)
_FULL_ROW = re.compile(r"^(?!/dev/loop)\S+\s.*\s(?:9[89]|100)%\s+/(?!dev/shm|snap/)\S*\s*$", re.MULTILINE)
_NAMED_FILE = re.compile(r"[:(]\s*['\"](?P<path>/[^'\"]+)['\"]")
_INOTIFY = re.compile(r"inotify|[Ww]atch(?:er|dog|es)\b|add_watch|file watch")
_QUOTA = re.compile(r"[Dd]isk quota|EDQUOT|Errno 122")
_INDEX_ASSERT = re.compile(r"Assertion `.*(?:index|srcIndex|t >= 0|n_classes|cur_target|idx)|IndexKernel\.cu|Loss\.cu")
_VALUE_ASSERT = re.compile(r"Assertion `.*(?:input_val|target_val|>= ?zero|<= ?one|0 <= \w+ && \w+ <= 1)")
_EMBEDDING = re.compile(r"embedding|nn/functional\.py.*in (?:embedding|linear)|cross_entropy|nll_loss|vocab")

_HOST_ALLOCATOR = re.compile(
    r"by allocator (?:mklcpu|cpu|CPU)|device:CPU|on CPU\b|CPUPlace|host memory|GPU_host_bfc|cpu_allocator|on CPUPlace"
)
_KERNEL_WORDING = (
    r"[Oo]ut of memory: Kill|oom-kill|oom_kill|oom_reaper|[Mm]emory cgroup out of memory|OOM killer",
    r"invoked oom-killer|systemd-oomd|OOMKilled|using all available RAM|out-of-memory killer|Out Of Memory",
    r"tried to allocate more memory than is available|cc1(?:plus)?\b|exceeded memory|\bearlyoom\b|\bnohang\b",
    r"ran out-of-memory",
)
_KERNEL_WORDS = re.compile("|".join(_KERNEL_WORDING))


_LOST_CONNECTION = re.compile(r"got 0 bytes|[Cc]onnection (?:reset|closed|refused)|recvBytes")
_OTHER_DEVICE = re.compile(r"\b(?:NPU|MLU|MUSA|HPU|GCU|SDAA) out of memory")
_PINNING = re.compile(r"\bpin_memory\(")
_OLD_ALLOCATOR = re.compile(r"/THC/generic/THCStorage|/THC/THCTensor|THCCachingAllocator")
_HOSTED = re.compile(r"\b[Cc]olab\b|/content/|[Kk]aggle")
_LATE_KINDS = {
    FailureKind.DEVICE_ASSERT,
    FailureKind.LIBRARY_OOM,
    FailureKind.LIBRARY_ERROR,
    FailureKind.LAUNCH_FAILED,
}
_ULIMIT_V = re.compile(r"(?:ulimit -S?v\b|RLIMIT_AS|virtual memory .{0,20}\(kbytes, -v\))(?!\s+unlimited)")
_FRAMEWORKS = {Speaker.DARKNET, Speaker.MXNET, Speaker.TENSORFLOW, Speaker.JAX, Speaker.PADDLE, Speaker.LLAMA_CPP}
_HOST_KINDS = {
    FailureKind.BAD_ALLOC,
    FailureKind.DRIVER_OOM,
    FailureKind.MEMORY_ERROR,
    FailureKind.ENOMEM,
    FailureKind.CPU_OOM,
}


def refine_kind(
    kind: FailureKind, numbers: MessageNumbers, message: str, surroundings: str, speaker: Speaker
) -> FailureKind:
    """Return the kind that the numbers and the text around a line show."""
    if kind in _HOST_KINDS and _ULIMIT_V.search(surroundings):
        return FailureKind.ADDRESS_SPACE
    if kind is FailureKind.MAPPING_LIMIT and _ULIMIT_V.search(f"{surroundings}\n{message}"):
        return FailureKind.ADDRESS_SPACE
    if kind is FailureKind.DRIVER_OOM:
        kind = _refine_driver_oom(message, surroundings, speaker)
    elif kind is FailureKind.FRAMEWORK_OOM and _is_of_torch(message, speaker):
        kind = FailureKind.CUDA_OOM
    line = message.partition("\n")[0]
    if is_impossible(kind, numbers):
        return FailureKind.IMPOSSIBLE_SIZE
    if kind is FailureKind.DISK_FULL:
        return _refine_no_space(line, f"{surroundings[-_NEAR:]}\n{line}", f"{surroundings}\n{message}")
    if kind is FailureKind.STOPPED:
        return _refine_stop(line, f"{surroundings}\n{message}")
    if kind in _LATE_KINDS:
        return _refine_late_error(kind, f"{surroundings}\n{message}")
    return kind


def _refine_driver_oom(message: str, surroundings: str, speaker: Speaker) -> FailureKind:
    if speaker in _FRAMEWORKS:
        return FailureKind.FRAMEWORK_OOM
    if _PINNING.search(surroundings[-_CALLS:]):
        return FailureKind.PINNED
    return FailureKind.CUDA_OOM if _OLD_ALLOCATOR.search(message) else FailureKind.DRIVER_OOM


def _is_of_torch(message: str, speaker: Speaker) -> bool:
    return speaker in TORCH_SPEAKERS - {Speaker.VLLM, Speaker.RAY} and not _OTHER_DEVICE.search(message)


def _refine_stop(line: str, text: str) -> FailureKind:
    """Return the kind of a stop; a hosted notebook that is out of RAM shows ^C although nobody has pressed it."""
    is_by_hand = "^C" not in line or "KeyboardInterrupt" in text
    return FailureKind.STOPPED if is_by_hand or not _HOSTED.search(text) else FailureKind.NOTEBOOK_DIED


def _refine_late_error(kind: FailureKind, text: str) -> FailureKind:
    """Return the kind of an error that the GPU reports late, for an earlier one."""
    if _VALUE_ASSERT.search(text):
        return FailureKind.VALUE_ASSERT
    if kind is not FailureKind.DEVICE_ASSERT and (_INDEX_ASSERT.search(text) or "device-side assert" in text):
        return FailureKind.DEVICE_ASSERT
    return kind


def _refine_no_space(line: str, near: str, text: str) -> FailureKind:
    if _INOTIFY.search(near):
        return FailureKind.FILE_WATCHES
    if _QUOTA.search(near):
        return FailureKind.DISK_QUOTA
    row = _SHM_ROW.search(text)
    if row is not None and row["use"] and int(row["use"]) >= _FULL_PERCENT:
        return FailureKind.SHM_FULL
    file = _NAMED_FILE.search(line)
    is_elsewhere = file is not None and _SHM.search(file["path"]) is None
    if is_elsewhere or _FULL_ROW.search(text):
        return FailureKind.DISK_FULL
    return FailureKind.SHM_FULL if _SHM.search(_SHM_ROW.sub("", near)) else FailureKind.DISK_FULL


def resource_of(kind: FailureKind, evidence: str, message: str, situation: Situation) -> Resource:
    """Return what ran out."""
    if kind is FailureKind.FRAMEWORK_OOM and "Dst tensor" not in evidence and _HOST_ALLOCATOR.search(message):
        return Resource.RAM
    if kind is FailureKind.IMPOSSIBLE_SIZE and not re.search(r"CUDA|GPU|HIP|XPU|MPS|buffer size", evidence):
        return Resource.RAM
    if kind is FailureKind.CPU_OOM and situation.system is System.WINDOWS:
        return Resource.COMMIT
    if kind is FailureKind.WORKER_EXITED and situation.system is System.WINDOWS:
        return Resource.NONE
    return CAUSES[kind].resource


def says_for_sure(kind: FailureKind, evidence: str, message: str, surroundings: str) -> bool:
    """Return True if the text proves the cause."""
    if kind in {FailureKind.OOM_KILL, FailureKind.NOTEBOOK_DIED, FailureKind.WORKER_KILLED, FailureKind.WORKER_EXITED}:
        return _KERNEL_WORDS.search(evidence) is not None
    if kind is FailureKind.DEVICE_ASSERT:
        return "Assertion `" in message or "Assertion `" in surroundings
    if kind is FailureKind.PINNED:
        return "out of memory" not in message
    if kind is FailureKind.PEER_DIED:
        return _LOST_CONNECTION.search(evidence) is None
    if kind is FailureKind.DISK_FULL and "PytorchStreamWriter" in evidence:
        return "No space left" in surroundings or "No space left" in message
    if kind is FailureKind.LIBRARY_OOM:
        return re.search(r"cublasCreate|create cublas", evidence) is None
    return CAUSES[kind].is_sure
