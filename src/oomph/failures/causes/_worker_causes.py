"""Causes of failures of loader workers and of other ranks."""

from __future__ import annotations

from .. import _common_advice as common
from .._kinds import Advice, Cause, FailureKind, Family, Resource

_OTHER_LOGS = Advice(
    "Find the first error in the logs of the other ranks:", "$ torchrun --redirects 3 --log-dir logs train.py"
)
_NCCL_DEBUG = Advice("Let NCCL say which call failed:", "$ NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET torchrun …")

WORKER_CAUSES = (
    Cause(
        FailureKind.WORKER_KILLED,
        "A worker process was killed because RAM ran out",
        "When RAM is used up or a limit is reached, the kernel kills a large process, often a worker. The memory of "
        "workers grows as they touch Python objects that they share with the parent.",
        (
            common.FEWER_WORKERS,
            Advice(
                "Store lists of paths and labels as arrays instead of Python objects: touching an object copies its "
                "page.",
                "self.paths = np.array(paths)",
            ),
            common.WATCH,
        ),
        Family.WORKERS,
        resource=Resource.RAM,
        likely_title="A worker process was killed, almost certainly because RAM ran out",
        is_sure=False,
        lint_rules=("dataset-in-memory",),
    ),
    Cause(
        FailureKind.WORKER_BUS_ERROR,
        "A loader worker died with a bus error because /dev/shm is full",
        "Workers pass batches through shared memory. Docker gives a container 64 MiB of it by default, and writing "
        "beyond that is a bus error.",
        (common.LARGER_SHM, common.LESS_SHM, common.DOCTOR),
        Family.WORKERS,
        resource=Resource.SHM,
    ),
    Cause(
        FailureKind.WORKER_EXITED,
        "A worker exited without an error message",
        "Mostly the kernel killed it because RAM ran out, or shared memory was full. Otherwise a decoder crashed in "
        "it. The error of the parent process doesn't show which.",
        (common.NO_WORKERS, common.FEWER_WORKERS, common.KERNEL_LOG),
        Family.WORKERS,
        resource=Resource.RAM,
        likely_title="A worker exited without an error message, most likely because RAM ran out",
        is_sure=False,
    ),
    Cause(
        FailureKind.WORKER_TERMINATED,
        "A worker was terminated by SIGTERM",
        "Somebody asked the worker to end: the training process after its own error, a launcher, or a scheduler. "
        "Memory is not the problem; the reason is in the lines above it, or in the scheduler's log.",
        (
            Advice(
                "Look for the first error above this line; in the scheduler's log if there is none:",
                "$ grep -n -m1 -E 'Error|error:|CANCELLED' LOG",
            ),
            common.NO_WORKERS,
        ),
        Family.OTHER,
    ),
    Cause(
        FailureKind.SPAWN_FAILED,
        "A worker process could not be started",
        "Windows and macOS start a worker as a new process that imports the script again and receives the dataset "
        "through a pipe. The new process ended before it had read it: the script has no main guard, the dataset can't "
        "be pickled, or memory ran out while it imported torch.",
        (
            Advice("Start training only in the main process:", 'if __name__ == "__main__": main()'),
            Advice("Run without workers, which shows the real error:", "DataLoader(dataset, num_workers=0)"),
            Advice("See how many workers the commit limit allows:", "$ oomph doctor --workers 2"),
        ),
        Family.OTHER,
        likely_title="A worker process could not be started, most likely because the script has no main guard",
        is_sure=False,
        lint_rules=("workers-without-main-guard",),
    ),
    Cause(
        FailureKind.SHM_FULL,
        "Shared memory is full",
        "Batches from loader workers, locks and NCCL's buffers are in /dev/shm, and no space was left there.",
        (
            common.LARGER_SHM,
            common.LESS_SHM,
            Advice("See what is in it, and remove the files of dead runs:", "$ df -h /dev/shm; ls -la /dev/shm"),
        ),
        Family.WORKERS,
        resource=Resource.SHM,
    ),
    Cause(
        FailureKind.OPEN_FILES,
        "Too many open files",
        "Each tensor from a worker has a file descriptor until it is freed. Tensors that are kept in a list exceed "
        "`ulimit -n`. The amount of memory is not the problem.",
        (
            Advice("Raise the limit of open files for this shell:", "$ ulimit -n 65536"),
            Advice("Or share tensors by file name:", 'torch.multiprocessing.set_sharing_strategy("file_system")'),
            Advice("Don't keep tensors of past batches; copy those you need.", "kept.append(tensor.clone())"),
        ),
        Family.WORKERS,
        resource=Resource.FILES,
    ),
)

RANK_CAUSES = (
    Cause(
        FailureKind.RANK_TIMEOUT,
        "A rank waited for another rank until the timeout",
        "A collective operation needs every rank. One of them didn't take part: it died, mostly because memory ran "
        "out, or it is still busy. This message is from a rank that waited; the cause is in the log of the missing "
        "rank.",
        (
            Advice(
                "Check the logs of all other ranks at the time of the last step: the cause is in one of them.",
                "$ oomph explain LOG_OF_THE_OTHER_RANK",
            ),
            Advice(
                "If a rank is only slow (saving, evaluating), give it more time:",
                "torch.distributed.init_process_group(timeout=datetime.timedelta(hours=1))",
            ),
            Advice(
                "If a rank runs out of memory, let all ranks split the step in the same way:",
                "guard = oomph.guard(model=model, optimizer=optimizer, loss=loss)",
            ),
        ),
        Family.RANKS,
    ),
    Cause(
        FailureKind.PEER_DIED,
        "Another process of the job died",
        "The connection to another rank broke, or the launcher stopped all ranks because one has failed.",
        (
            _OTHER_LOGS,
            Advice("Then explain the log of the rank that failed first:", "$ oomph explain LOG_OF_THE_OTHER_RANK"),
        ),
        Family.RANKS,
        likely_title="The connection to another process of the job broke, most likely because it died",
    ),
    Cause(
        FailureKind.NCCL_ERROR,
        "NCCL failed in a system or CUDA call",
        "NCCL could not use the network, shared memory, a socket or another GPU, or a call of the driver failed. The "
        "amount of GPU memory is rarely the problem.",
        (
            _NCCL_DEBUG,
            Advice(
                "Name the network interface, or rule out InfiniBand and peer access one at a time:",
                "$ NCCL_SOCKET_IFNAME=eth0 NCCL_IB_DISABLE=1 NCCL_P2P_DISABLE=1 torchrun …",
            ),
            Advice(
                "In a container, check shared memory and locked memory:",
                "$ docker run --ipc=host --ulimit memlock=-1 --gpus all …",
            ),
        ),
        Family.RANKS,
    ),
)
