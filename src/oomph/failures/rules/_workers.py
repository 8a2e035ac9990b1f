"""Rules for loader workers."""

from __future__ import annotations

from .._kinds import FailureKind
from ._rule import rule

WORKER_RULES = (
    rule(FailureKind.WORKER_BUS_ERROR, "killed by signal: Bus error"),
    rule(FailureKind.WORKER_BUS_ERROR, "insufficient shared memory (shm)"),
    rule(FailureKind.CRASH, "killed by signal: Segmentation fault"),
    rule(FailureKind.CRASH, "killed by signal: Aborted"),
    rule(FailureKind.WORKER_KILLED, "is killed by signal: Killed"),
    rule(FailureKind.WORKER_TERMINATED, "killed by signal: Terminated"),
    rule(FailureKind.STOPPED, "killed by signal: Interrupt"),
    rule(
        FailureKind.WORKER_EXITED, "exited unexpectedly", r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"
    ),
    rule(
        FailureKind.WORKER_EXITED,
        "exited unexpectedly with exit code",
        r"DataLoader worker \(pid \d+\) exited unexpectedly",
    ),
    # Error in the training process if a worker dies while it sends a batch.
    rule(
        FailureKind.WORKER_EXITED,
        "in rebuild_storage_f",
        r"in rebuild_storage_f[\s\S]{0,3900}?(?:Connection\w+Error|EOFError)",
    ),
    rule(
        FailureKind.CRASH,
        "TerminatedWorkerError",
        r"TerminatedWorkerError[\s\S]{0,600}?exit codes of the workers are \{SIGSEGV",
    ),
    rule(FailureKind.WORKER_KILLED, "TerminatedWorkerError"),
    rule(FailureKind.WORKER_KILLED, "worker process managed by the executor was unexpectedly terminated"),
    rule(FailureKind.WORKER_KILLED, "KilledWorker", r"KilledWorker\b"),
    rule(FailureKind.WORKER_KILLED, "memory budget", r"exceeded \d+% memory budget"),
    rule(FailureKind.WORKER_KILLED, "orker exited prematurely", r"orker exited prematurely: signal 9"),
    rule(FailureKind.WORKER_KILLED, "was sent SIGKILL"),
    rule(FailureKind.WORKER_EXITED, "background workers are no longer alive"),
    rule(
        FailureKind.WORKER_EXITED,
        "ackground worker is 6 feet under",
        r"^(?!.*\braise\b).*[Bb]ackground worker is 6 feet",
    ),
    rule(FailureKind.WORKER_EXITED, "of your background processes is missing"),
    rule(FailureKind.WORKER_EXITED, "abruptly died", r"subprocesses has abruptly died"),
    rule(FailureKind.WORKER_EXITED, "in the process pool was terminated abruptly"),
    # The child of a spawn ends before it has read what the parent sends.
    rule(
        FailureKind.SPAWN_FAILED,
        "reduction.pickle.load(from_parent)",
        r"reduction\.pickle\.load\(from_parent\)\s+\w*EOFError: Ran out of input",
    ),
    rule(FailureKind.SPAWN_FAILED, "in spawn_main", r"in spawn_main[\s\S]{0,2500}?EOFError: Ran out of input"),
    rule(
        FailureKind.SPAWN_FAILED,
        "popen_spawn_",
        r"popen_spawn_\w+[\s\S]{0,2500}?(?:BrokenPipeError|EOFError|Errno 22\] Invalid argument|Errno 32\])",
    ),
    rule(FailureKind.SPAWN_FAILED, "BrokenPipeError: [Errno 32]"),
    rule(FailureKind.FORKED_CUDA, "Cannot re-initialize CUDA in forked subprocess"),
    rule(FailureKind.WORKER_EXITED, "BrokenProcessPool: "),
    rule(FailureKind.LOADER_TIMEOUT, "DataLoader timed out after"),
)
