"""What people paste beside a message: limits, tables of the disk, GPU processes, warnings that came before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..units import GIB, MIB, format_size
from ._details import Detail
from ._kinds import Advice, FailureKind, Resource
from ._situation import Situation, System

_GPU_KINDS = frozenset(
    {
        FailureKind.CUDA_OOM,
        FailureKind.DRIVER_OOM,
        FailureKind.LIBRARY_OOM,
        FailureKind.LIBRARY_ERROR,
        FailureKind.FRAMEWORK_OOM,
    }
)
_HOST_KINDS = frozenset(
    {
        FailureKind.MEMORY_ERROR,
        FailureKind.CPU_OOM,
        FailureKind.BAD_ALLOC,
        FailureKind.ENOMEM,
        FailureKind.ADDRESS_SPACE,
    }
)


@dataclass(frozen=True)
class Evidence:
    """What a pasted text shows about a failure: a sentence, the advice that follows, and what ran out if it differs."""

    detail: Detail
    resource: Resource | None = None


@dataclass(frozen=True)
class _Sign:
    """A pattern that is evidence for some kinds of failures; the sentence may use the pattern's groups."""

    kinds: frozenset[FailureKind]
    pattern: re.Pattern[str]
    sentence: str
    advice: tuple[Advice, ...]
    resource: Resource | None = None


def _sign(
    kinds: FailureKind | frozenset[FailureKind],
    pattern: str,
    sentence: str,
    *advice: Advice,
    resource: Resource | None = None,
) -> _Sign:
    known = frozenset({kinds}) if isinstance(kinds, FailureKind) else kinds
    return _Sign(known, re.compile(pattern, re.MULTILINE), sentence, advice, resource)


_PACK_FILES = Advice(
    "Pack small files into archives (tar, HDF5, WebDataset), or delete them. See which folders have most of them:",
    "$ du --inodes -x -d 3 . | sort -n | tail",
)
_SIGNS = (
    _sign(
        FailureKind.DISK_FULL,
        r"IUse%[^\n]*\n(?:[^\n]*\n)*?[^\n]*\b(?:9[89]|100)% ",
        "The file system has no inodes left: it has too many files, although there is space.",
        _PACK_FILES,
    ),
    _sign(
        FailureKind.DISK_QUOTA,
        r"\bfiles +quota +limit[^\n]*\n(?:[^\n]*\n)?[^\n*]*\s\d+[KMGT]? +(?:\S+ +){0,3}\d{4,}\*",
        "The number of files is over its quota, not their size.",
        _PACK_FILES,
    ),
    _sign(
        FailureKind.DISK_FULL,
        r"ephemeral[- ](?:local )?storage usage exceeds|EmptyDir volume",
        "The pod used more of the node's disk than its limits allow; the disk itself may have space.",
    ),
    _sign(
        _HOST_KINDS,
        r"overcommit_memory\W{0,12}2\b",
        "Strict overcommit (vm.overcommit_memory = 2) refuses memory although RAM is free: what all processes have "
        "reserved reaches CommitLimit.",
        Advice("Let the kernel promise more than it has:", "$ sudo sysctl vm.overcommit_memory=0"),
        Advice("Or raise the commit limit, or add swap:", "$ sudo sysctl vm.overcommit_ratio=95"),
        resource=Resource.COMMIT,
    ),
    _sign(
        _HOST_KINDS,
        r"\b32[- ]bit \((?:Intel|ARM)|\b32-?bit [Pp]ython|[Pp]ython[^\n]{0,40}\b32[- ]bit|\bwin32\b[^\n]{0,20}\b32 bit",
        "This Python is a 32-bit program, which can use 2 to 4 GiB on any machine.",
        Advice(
            "Install a 64-bit Python. This must print 64:",
            "$ python -c \"import struct; print(8 * struct.calcsize('P'))\"",
        ),
        resource=Resource.ADDRESS_SPACE,
    ),
    _sign(
        _HOST_KINDS,
        r"reshape[/\\]merge\.py|get_join_indexers|_libs\.join\.",
        "A merge multiplies the rows whose key occurs several times on both sides.",
        Advice(
            "Check the keys, and drop duplicates before the merge:",
            'left.merge(right.drop_duplicates("key"), on="key", validate="many_to_one")',
        ),
    ),
    _sign(
        FailureKind.OOM_KILL,
        r"replay buffer ([\d.]+ ?GB) > ([\d.]+ ?GB)",
        "The replay buffer needs {0}, and {1} of RAM was available, as a warning said before.",
        Advice(
            "Use a smaller replay buffer, or one that keeps each observation once:",
            "DQN(…, buffer_size=100_000, optimize_memory_usage=True)",
        ),
    ),
    _sign(
        frozenset({FailureKind.FRAMEWORK_OOM, FailureKind.IMPOSSIBLE_SIZE}),
        r"RandomUniform|RandomStandardNormal|TruncatedNormal|/Initializer/|in add_weight\b|in reset_parameters\b",
        "It is a weight of a layer that is being created, so smaller batches don't help.",
        Advice(
            "Make the layer smaller: pool before a dense layer instead of flattening the whole image:",
            "GlobalAveragePooling2D()  # or nn.AdaptiveAvgPool2d(1)",
        ),
    ),
    _sign(
        FailureKind.THREAD_LIMIT,
        r"fork rejected by pids controller",
        "The limit is that of the container or service (cgroup), not ulimit -u.",
        Advice("Raise its limit of processes (systemd: TasksMax=infinity):", "$ docker run --pids-limit=-1 …"),
    ),
    _sign(
        FailureKind.CRASH,
        r"^Current thread[^\n]*\n +File \"([^\"\n]+)\", line (\d+) in (\w+)[\s\S]{0,1500}?_worker_loop",
        "It crashed in a loader worker, in {2} at line {1} of {0}.",
        Advice(
            "Run it in the main process, and keep OpenCV from starting threads in workers:",
            "DataLoader(dataset, num_workers=0)  # and cv2.setNumThreads(0)",
        ),
        Advice("Find the sample:", "for index in range(len(dataset)): print(index); dataset[index]"),
        Advice("Update or pin the library that this line calls:", "$ pip install --upgrade PACKAGE"),
    ),
    _sign(
        FailureKind.CRASH,
        r"^Current thread[^\n]*\n +File \"([^\"\n]+)\", line (\d+) in (\w+)",
        "It crashed in {2}, at line {1} of {0}.",
        Advice("Run this line alone, with the same input.", ""),
        Advice("Update or pin the library that this line calls:", "$ pip install --upgrade PACKAGE"),
    ),
    _sign(
        FailureKind.MEMORY_ERROR,
        r"popen_spawn_win32",
        "A loader worker that was started as a new process (spawn) could not receive its copy of the dataset.",
        Advice(
            "Load in the main process, or keep paths instead of data in the Dataset:",
            "DataLoader(dataset, num_workers=0)",
        ),
        resource=Resource.COMMIT,
    ),
)
# A row of nvidia-smi's processes: the PID, its type, its name, its memory.
_PROCESS_ROW = re.compile(r"^\|\s+\d+\s+(?:\S+\s+\S+\s+)?(\d+)\s+[CG+]{1,3}\s+\S.*?\s(\d+) ?MiB\s*\|", re.MULTILINE)
_USED_OF_TOTAL = re.compile(r"\|\s+(\d+) ?MiB ?/ ?(\d+) ?MiB\s+\|")
_NO_PROCESSES = "No running processes found"
_MIN_LISTED = GIB
_MIN_SHARE = 0.5  # of the card, held by nobody that is listed


def find_evidence(kind: FailureKind, text: str, situation: Situation) -> tuple[Evidence, ...]:
    """Return what a text around a failure shows about it, most important first."""
    return tuple(_evidence(kind, text, situation))


def _evidence(kind: FailureKind, text: str, situation: Situation) -> Iterator[Evidence]:
    if kind in _GPU_KINDS and "MiB" in text:
        yield from _processes(text, situation)
    is_known = False
    for sign in _SIGNS:
        if kind in sign.kinds and not (is_known and kind is FailureKind.CRASH) and (match := sign.pattern.search(text)):
            is_known = True
            yield Evidence(Detail(sign.sentence.format(*match.groups()), sign.advice), sign.resource)


def _processes(text: str, situation: Situation) -> Iterator[Evidence]:
    """Yield what a pasted table of nvidia-smi shows."""
    rows = [(int(match[2]) * MIB, int(match[1])) for match in _PROCESS_ROW.finditer(text)]
    largest = max(rows, default=None)
    if largest is not None and largest[0] >= _MIN_LISTED:
        size, pid = largest
        yield Evidence(
            Detail(f"nvidia-smi shows process {pid} with {format_size(size)} of the GPU.", (_stop(pid, situation),))
        )
    use = _USED_OF_TOTAL.search(text)
    if use is not None and _NO_PROCESSES in text and int(use[1]) >= _MIN_SHARE * int(use[2]):
        yield Evidence(
            Detail(
                f"nvidia-smi shows {format_size(int(use[1]) * MIB)} in use, but no process: it is in another "
                "container, or ended without returning its memory.",
                (
                    Advice(
                        "Find who has the GPU open, and stop it (or restart the machine):",
                        "$ sudo fuser -v /dev/nvidia*",
                    ),
                ),
            )
        )


def _stop(pid: int, situation: Situation) -> Advice:
    command = (
        f'$ tasklist /FI "PID eq {pid}"'
        if situation.system is System.WINDOWS
        else f"$ ps -o pid,user,etime,args -p {pid}"
    )
    return Advice("If that isn't this run, stop it (an older run, a notebook), or wait for it:", command)
