"""The kinds of failures, their causes, and findings: failures that were recognized in a log, exception or Record."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Family(enum.Enum):
    """Group of failures; `RANKS`, `NUMERICS` and `OTHER` are not about memory."""

    DEVICE = "device memory"
    HOST = "host memory"
    WORKERS = "loader workers"
    RANKS = "other ranks"
    SYMPTOM = "symptom"
    NUMERICS = "numerical error"
    OTHER = "not memory"


class Resource(enum.Enum):
    """What ran out: kinds of memory, and limits that are often mistaken for memory."""

    GPU = "gpu"
    RAM = "ram"
    COMMIT = "commit"
    SHM = "shm"
    PINNED = "pinned"
    ADDRESS_SPACE = "address-space"
    DISK = "disk"
    QUOTA = "quota"
    FILES = "files"
    PROCESSES = "processes"
    NONE = "none"


_NOT_MEMORY = {Resource.DISK, Resource.QUOTA, Resource.FILES, Resource.PROCESSES}


class FailureKind(enum.Enum):
    """A failure that oomph can recognize."""

    # Device memory.
    CUDA_OOM = "cuda-out-of-memory"
    HIP_OOM = "hip-out-of-memory"
    MPS_OOM = "mps-out-of-memory"
    XPU_OOM = "xpu-out-of-memory"
    DRIVER_OOM = "driver-out-of-memory"
    LIBRARY_OOM = "library-out-of-memory"
    LIBRARY_ERROR = "library-error"
    FRAMEWORK_OOM = "framework-out-of-memory"
    TOO_MANY_ELEMENTS = "too-many-elements"
    IMPOSSIBLE_SIZE = "impossible-size"
    # Host memory.
    CPU_OOM = "cpu-out-of-memory"
    MEMORY_ERROR = "memory-error"
    BAD_ALLOC = "bad-alloc"
    ENOMEM = "enomem"
    ADDRESS_SPACE = "address-space"
    MAPPING_LIMIT = "mapping-limit"
    COMMIT_LIMIT = "commit-limit"
    PINNED = "pinned-memory"
    OOM_KILL = "oom-kill"
    HOST_BUDGET = "host-budget"
    HOST_FULL = "host-full"
    SCHEDULER_KILL = "scheduler-kill"
    NOTEBOOK_DIED = "notebook-died"
    WINDOWS_ABORT = "windows-abort"
    # Loader workers.
    WORKER_KILLED = "worker-killed"
    WORKER_BUS_ERROR = "worker-bus-error"
    WORKER_EXITED = "worker-exited"
    WORKER_TERMINATED = "worker-terminated"
    SPAWN_FAILED = "spawn-failed"
    SHM_FULL = "shm-full"
    OPEN_FILES = "open-files"
    # Other ranks.
    RANK_TIMEOUT = "rank-timeout"
    PEER_DIED = "peer-died"
    NCCL_ERROR = "nccl-error"
    # Symptoms.
    THRASHING = "allocator-thrashing"
    DEVICE_LEAK = "device-leak"
    HOST_LEAK = "host-leak"
    FRAGMENTATION = "fragmentation"
    OTHER_PROCESS = "other-process"
    MEMORY_CAP = "memory-cap"
    SPILL = "spill"
    PAGING = "paging"
    STARVED = "starved"
    UNEXPECTED_END = "unexpected-end"
    # Numerical errors.
    NON_FINITE_LOSS = "non-finite-loss"
    NON_FINITE_GRADIENTS = "non-finite-gradients"
    SKIPPED_STEPS = "skipped-steps"
    # Not memory.
    DEVICE_ASSERT = "device-assert"
    VALUE_ASSERT = "value-assert"
    ILLEGAL_ACCESS = "illegal-access"
    LAUNCH_FAILED = "launch-failed"
    KERNEL_RESOURCES = "kernel-resources"
    NO_KERNEL_IMAGE = "no-kernel-image"
    DRIVER_OLD = "driver-old"
    NO_CUDA_BUILD = "no-cuda-build"
    NO_GPU = "no-gpu"
    DEVICE_BUSY = "device-busy"
    GPU_LOST = "gpu-lost"
    MIXED_LIBRARIES = "mixed-libraries"
    FORKED_CUDA = "forked-cuda"
    SHAPE = "shape"
    LAYOUT = "layout"
    INDEX = "index"
    DEVICE_OR_DTYPE = "device-or-dtype"
    BATCH_OF_ONE = "batch-of-one"
    AUTOGRAD = "autograd"
    UNUSED_PARAMETERS = "unused-parameters"
    STATE_DICT = "state-dict"
    BAD_CHECKPOINT = "bad-checkpoint"
    BAD_IMAGE = "bad-image"
    MISSING_MODULE = "missing-module"
    BROKEN_LIBRARY = "broken-library"
    MISSING_FILE = "missing-file"
    PERMISSION = "permission"
    DISK_FULL = "disk-full"
    DISK_QUOTA = "disk-quota"
    FILE_WATCHES = "file-watches"
    MISSING_MAIN_GUARD = "missing-main-guard"
    PORT_IN_USE = "port-in-use"
    THREAD_LIMIT = "thread-limit"
    NETWORK = "network"
    COMPILER = "compiler"
    LOADER_TIMEOUT = "loader-timeout"
    HANG = "hang"
    KILLED = "killed"
    CRASH = "crash"
    ABORTED = "aborted"
    TIME_LIMIT = "time-limit"
    STOPPED = "stopped"
    PYTHON_ERROR = "python-error"


@dataclass(frozen=True)
class Advice:
    """One piece of advice: a sentence, and the command or line of code that carries it out.

    A shell command starts with "$ ".
    """

    text: str
    command: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The sentence and the lines of the command, without those that are empty."""
        return tuple(line for line in (self.text, *self.command.split("\n")) if line)


@dataclass(frozen=True)
class Cause:
    """The explanation of one kind of failure.

    Attributes:
        kind: The kind.
        title: What happened, in a few words, if the text proves it.
        why: How it happens.
        advice: What to do, best first.
        family: The group of failures.
        retryable: True if the same step can succeed with smaller micro-batches.
        resource: What ran out, unless the text says otherwise.
        likely_title: What most likely happened, for texts that don't prove it; empty if every text of this kind does.
        is_sure: True if a text of this kind proves the cause, unless it says otherwise.
        lint_rules: Rules of `oomph lint` that find such errors in code.
        myth: A false belief about this failure, which has a section in docs/myths.md; empty if there is none.
    """

    kind: FailureKind
    title: str
    why: str
    advice: tuple[Advice, ...]
    family: Family = Family.OTHER
    retryable: bool = False
    resource: Resource = Resource.NONE
    likely_title: str = ""
    is_sure: bool = True
    lint_rules: tuple[str, ...] = ()
    myth: str = ""

    @property
    def is_memory(self) -> bool:
        """True if the failure is about memory."""
        return self.family not in {Family.OTHER, Family.NUMERICS, Family.RANKS} and self.resource not in _NOT_MEMORY

    @property
    def fix(self) -> tuple[str, ...]:
        """The lines of the advice."""
        return tuple(line for advice in self.advice for line in advice.lines)


@dataclass(frozen=True)
class Finding:
    """A recognized failure.

    Attributes:
        cause: The explanation of its kind.
        evidence: The text or measurement that it was recognized by.
        numbers: Numbers of this failure by name: sizes in bytes, counts, a `rank`, a `pid`. Read-only.
        details: Sentences about this failure, most important first.
        advice: What to do about this failure, best first; at most three pieces.
        resource: What ran out.
        is_sure: True if the text or measurement proves the cause; otherwise it is only the most likely one.
        speaker: The library or program that reported it, such as "pytorch"; empty if unknown.
        time: When it happened, or was first measured, in seconds since 1970; None if unknown.
        was_survived: True if the run went on for long after it, or finished.
    """

    cause: Cause
    evidence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    details: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    resource: Resource = Resource.NONE
    is_sure: bool = True
    speaker: str = ""
    time: float | None = None
    was_survived: bool = False

    @property
    def kind(self) -> FailureKind:
        """The kind of its cause."""
        return self.cause.kind

    @property
    def title(self) -> str:
        """What happened, or what most likely happened, in a few words."""
        return self.cause.title if self.is_sure else self.cause.likely_title or self.cause.title

    @property
    def lint_rules(self) -> tuple[str, ...]:
        """Rules of `oomph lint` that find such errors in code."""
        is_of_compiler = "cc1" in self.evidence
        is_of_batch = self.kind is not FailureKind.SHAPE or "stack expects" in self.evidence
        return self.cause.lint_rules if is_of_batch and not is_of_compiler else ()

    @property
    def retryable(self) -> bool:
        """True if the same step can succeed with smaller micro-batches."""
        return self.cause.retryable

    @property
    def fix(self) -> tuple[str, ...]:
        """The lines of the advice; a line that starts with "$ " is a command."""
        return tuple(line for advice in self.advice for line in advice.lines)
