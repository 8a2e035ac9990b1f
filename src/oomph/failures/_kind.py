"""What can go wrong with a run, by name, and what a failure that was recognised looks like."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Family(enum.Enum):
    """What a kind of failure is about; only `OTHER` and `NUMBERS` are not about memory."""

    DEVICE = "device memory"
    HOST = "host memory"
    WORKERS = "loader workers"
    RANKS = "another rank"
    SYMPTOM = "symptom"
    NUMBERS = "numerical trouble"
    OTHER = "not memory"


class FailureKind(enum.Enum):
    """Every cause that oomph can name."""

    # Device memory.
    CUDA_OOM = "cuda-out-of-memory"
    HIP_OOM = "hip-out-of-memory"
    MPS_OOM = "mps-out-of-memory"
    XPU_OOM = "xpu-out-of-memory"
    DRIVER_OOM = "driver-out-of-memory"
    LIBRARY_OOM = "library-out-of-memory"
    LIBRARY_DISGUISE = "library-disguise"
    FRAMEWORK_OOM = "framework-out-of-memory"
    TOO_MANY_ELEMENTS = "too-many-elements"
    # Host memory.
    CPU_OOM = "cpu-out-of-memory"
    MEMORY_ERROR = "memory-error"
    BAD_ALLOC = "bad-alloc"
    REFUSED_BY_SYSTEM = "refused-by-system"
    ADDRESS_SPACE = "address-space"
    COMMIT_LIMIT = "commit-limit"
    PINNED = "pinned-memory"
    HOST_KILL = "host-kill"
    SCHEDULER_KILL = "scheduler-kill"
    NOTEBOOK_DIED = "notebook-died"
    # Loader workers.
    WORKER_KILLED = "worker-killed"
    WORKER_BUS_ERROR = "worker-bus-error"
    WORKER_GONE = "worker-gone"
    SHM_FULL = "shm-full"
    OPEN_FILES = "open-files"
    # Other ranks.
    RANK_TIMEOUT = "rank-timeout"
    PEER_DIED = "peer-died"
    # Symptoms.
    THRASH = "thrash"
    DEVICE_LEAK = "device-leak"
    HOST_LEAK = "host-leak"
    FRAGMENTATION = "fragmentation"
    OTHER_PROCESS = "other-process"
    CAPPED = "capped"
    SPILL = "spill"
    PAGING = "paging"
    STARVED = "starved"
    UNCLEAN_END = "unclean-end"
    # Numerical trouble.
    BAD_LOSS = "bad-loss"
    BAD_GRADIENTS = "bad-gradients"
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
    PLACE_OR_TYPE = "place-or-type"
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
    SPAWN_GUARD = "spawn-guard"
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
    """One kind of failure, in words.

    Attributes:
        kind: its name.
        title: what happened, in a few words.
        why: how it comes about.
        fix: what to do, one step a line, cheapest first; a line that starts with "$ " is a command.
        family: what it is about.
        retryable: whether the same step in smaller pieces can succeed.
    """

    kind: FailureKind
    title: str
    why: str
    fix: tuple[str, ...]
    family: Family = Family.OTHER
    retryable: bool = False

    @property
    def is_memory(self) -> bool:
        """Whether memory is what ran short."""
        return self.family not in {Family.OTHER, Family.NUMBERS}


@dataclass(frozen=True)
class Finding:
    """A failure that was recognised.

    Attributes:
        cause: what it is.
        evidence: the words or numbers it was recognised by.
        figures: numbers found beside it, by name: sizes in bytes, counts, a `rank`, a `pid`. Not to be changed.
        detail: what is special about this one, in sentences, most important first.
        advice: what to do about that, before what the cause says.
    """

    cause: Cause
    evidence: str
    figures: Mapping[str, float] = field(default_factory=dict)
    detail: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()

    @property
    def kind(self) -> FailureKind:
        """The cause's kind."""
        return self.cause.kind

    @property
    def retryable(self) -> bool:
        """Whether the same step in smaller pieces can succeed."""
        return self.cause.retryable

    @property
    def fix(self) -> tuple[str, ...]:
        """What to do, all of it: about this one first, then about its kind."""
        return tuple(dict.fromkeys((*self.advice, *self.cause.fix)))
