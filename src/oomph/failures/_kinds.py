"""The kinds of failures, their causes, and findings: failures that were recognized in a log, exception or Record."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Family(enum.Enum):
    """Group of failures; all except `NUMERICS` and `OTHER` are about memory."""

    DEVICE = "device memory"
    HOST = "host memory"
    WORKERS = "loader workers"
    RANKS = "other ranks"
    SYMPTOM = "symptom"
    NUMERICS = "numerical error"
    OTHER = "not memory"


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
    # Host memory.
    CPU_OOM = "cpu-out-of-memory"
    MEMORY_ERROR = "memory-error"
    BAD_ALLOC = "bad-alloc"
    ENOMEM = "enomem"
    ADDRESS_SPACE = "address-space"
    COMMIT_LIMIT = "commit-limit"
    PINNED = "pinned-memory"
    OOM_KILL = "oom-kill"
    SCHEDULER_KILL = "scheduler-kill"
    NOTEBOOK_DIED = "notebook-died"
    # Loader workers.
    WORKER_KILLED = "worker-killed"
    WORKER_BUS_ERROR = "worker-bus-error"
    WORKER_EXITED = "worker-exited"
    SHM_FULL = "shm-full"
    OPEN_FILES = "open-files"
    # Other ranks.
    RANK_TIMEOUT = "rank-timeout"
    PEER_DIED = "peer-died"
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
    ILLEGAL_ACCESS = "illegal-access"
    LAUNCH_FAILED = "launch-failed"
    KERNEL_RESOURCES = "kernel-resources"
    NO_KERNEL_IMAGE = "no-kernel-image"
    DRIVER_OLD = "driver-old"
    NO_CUDA_BUILD = "no-cuda-build"
    NO_GPU = "no-gpu"
    DEVICE_BUSY = "device-busy"
    GPU_LOST = "gpu-lost"
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
    MISSING_MAIN_GUARD = "missing-main-guard"
    PORT_IN_USE = "port-in-use"
    THREAD_LIMIT = "thread-limit"
    NETWORK = "network"
    COMPILER = "compiler"
    LOADER_TIMEOUT = "loader-timeout"
    CRASH = "crash"
    ABORTED = "aborted"
    TIME_LIMIT = "time-limit"
    STOPPED = "stopped"
    PYTHON_ERROR = "python-error"


@dataclass(frozen=True)
class Cause:
    """The explanation of one kind of failure.

    Attributes:
        kind: The kind.
        title: What happened, in a few words.
        why: How it happens.
        fix: The steps to take, one per line, cheapest first; a line that starts with "$ " is a command.
        family: The group of failures.
        retryable: True if the same step can succeed with smaller micro-batches.
    """

    kind: FailureKind
    title: str
    why: str
    fix: tuple[str, ...]
    family: Family = Family.OTHER
    retryable: bool = False

    @property
    def is_memory(self) -> bool:
        """True if the failure is about memory."""
        return self.family not in {Family.OTHER, Family.NUMERICS}


@dataclass(frozen=True)
class Finding:
    """A recognized failure.

    Attributes:
        cause: The explanation of its kind.
        evidence: The text or measurement that it was recognized by.
        numbers: Numbers of this failure by name: sizes in bytes, counts, a `rank`, a `pid`. Read-only.
        details: Sentences about this failure, most important first.
        advice: Steps for this failure, to take before those of the cause.
        time: When it happened, or was first measured, in seconds since 1970; None if unknown.
    """

    cause: Cause
    evidence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    details: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    time: float | None = None

    @property
    def kind(self) -> FailureKind:
        """The kind of its cause."""
        return self.cause.kind

    @property
    def retryable(self) -> bool:
        """True if the same step can succeed with smaller micro-batches."""
        return self.cause.retryable

    @property
    def fix(self) -> tuple[str, ...]:
        """All steps: those for this failure, then those of its cause."""
        return tuple(dict.fromkeys((*self.advice, *self.cause.fix)))
