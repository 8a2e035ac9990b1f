"""Causes of failures of host memory."""

from __future__ import annotations

from .. import _common_advice as common
from .._kinds import Advice, Cause, FailureKind, Family, Resource

_LESS_RAM = (common.FEWER_WORKERS, common.NO_CACHE, common.DOCTOR)

HOST_CAUSES = (
    Cause(
        FailureKind.CPU_OOM,
        "torch could not allocate host memory",
        "torch requested RAM and the system refused: because of Windows' commit limit, a limit on the process "
        "(ulimit -v, ulimit -d), or a size that no machine has.",
        (
            Advice(
                "Use smaller micro-batches: oomph.guard splits such a step too.",
                "guard = oomph.guard(model=model, optimizer=optimizer, loss=loss); guard.step(batch)",
            ),
            common.FEWER_WORKERS,
            common.DOCTOR,
        ),
        Family.HOST,
        retryable=True,
        resource=Resource.RAM,
    ),
    Cause(
        FailureKind.MEMORY_ERROR,
        "The program could not allocate host memory",
        "An allocation in RAM was refused: by Windows when RAM and page file are used up, by Linux only because of a "
        "limit or an impossible size (otherwise it kills the process later), by Java at the limit of its heap.",
        (common.CHUNKS, common.NO_CACHE, common.DOCTOR),
        Family.HOST,
        retryable=True,
        resource=Resource.RAM,
        lint_rules=("dataset-in-memory", "float-on-host"),
    ),
    Cause(
        FailureKind.BAD_ALLOC,
        "A compiled library could not allocate host memory",
        "Compiled code (torch, OpenCV, image decoders, Polars) ends like this when an allocation in RAM fails.",
        _LESS_RAM,
        Family.HOST,
        retryable=True,
        resource=Resource.RAM,
    ),
    Cause(
        FailureKind.ENOMEM,
        "The system refused memory to a system call",
        "Starting a process or mapping a file needs committed memory (errno 12). The fork of a large process can be "
        "refused although little would be copied.",
        (
            common.FEWER_WORKERS,
            Advice(
                "See how much memory and swap is free, and which limits apply:", "$ free -h; ulimit -v; oomph doctor"
            ),
            Advice("If the commit limit is the problem and RAM is free:", "$ sudo sysctl vm.overcommit_memory=1"),
        ),
        Family.HOST,
        resource=Resource.RAM,
    ),
    Cause(
        FailureKind.ADDRESS_SPACE,
        "The process reached its address-space limit",
        "A library or file could not be mapped because of `ulimit -v`. torch with CUDA maps far more than it uses.",
        (
            Advice("Remove the limit on the address space before the run:", "$ ulimit -v unlimited"),
            Advice(
                "If a batch system sets it, request more virtual memory (h_vmem, pvmem) there, and check:",
                "$ oomph doctor",
            ),
        ),
        Family.HOST,
        resource=Resource.ADDRESS_SPACE,
    ),
    Cause(
        FailureKind.MAPPING_LIMIT,
        "The process has too many memory mappings",
        "Linux limits the mappings of a process (vm.max_map_count, 65,530 by default). Each tensor that a loader "
        "worker sends is one, so many small tensors reach the limit while RAM and /dev/shm have space.",
        (
            Advice("Raise the limit:", "$ sudo sysctl vm.max_map_count=1048576"),
            Advice(
                "Send fewer tensors: join the small ones of a sample or batch, or send NumPy arrays:",
                "batch = torch.cat(tensors), [len(tensor) for tensor in tensors]",
            ),
            Advice("If RAM or the commit limit is used up instead:", "$ free -h; cat /proc/sys/vm/overcommit_memory"),
        ),
        Family.HOST,
        resource=Resource.ADDRESS_SPACE,
        likely_title="The process most likely has too many memory mappings",
        is_sure=False,
    ),
    Cause(
        FailureKind.COMMIT_LIMIT,
        "The paging file is too small",
        "Windows commits memory up to RAM plus page file, even if RAM is free. Every loader worker is a new process "
        "that imports torch, and Windows commits the full size of the CUDA libraries for each.",
        (
            Advice("Use fewer loader workers: 0, 1 or 2, also for validation.", "DataLoader(dataset, num_workers=0)"),
            common.PAGE_FILE,
            Advice("See how many workers the commit limit allows:", "$ oomph doctor --workers 2"),
        ),
        Family.HOST,
        resource=Resource.COMMIT,
        myth="The page-file error comes from backpropagation",
    ),
    Cause(
        FailureKind.PINNED,
        "Pinned host memory could not be allocated",
        "pin_memory=True locks batches in RAM. Locked memory can't be swapped and is limited (ulimit -l, WSL), and "
        "registering it fails if the CUDA context is corrupted.",
        (
            Advice(
                "Don't pin: it costs a few percent at most unless loading is the bottleneck.",
                "DataLoader(dataset, pin_memory=False)",
            ),
            Advice(
                "Pin less: a smaller prefetch_factor, fewer workers:",
                "DataLoader(dataset, num_workers=2, prefetch_factor=1)",
            ),
            Advice("Raise the limit of locked memory:", "$ ulimit -l unlimited"),
        ),
        Family.HOST,
        resource=Resource.PINNED,
        myth="Pinning cures out-of-memory errors",
    ),
    Cause(
        FailureKind.NOTEBOOK_DIED,
        "The notebook kernel died because RAM ran out",
        "A notebook only sees that its kernel process has ended. Mostly the system killed it because RAM was full, and "
        "nothing in the notebook says so. A crash of a compiled library looks the same.",
        (
            common.KERNEL_LOG,
            Advice(
                "Run the same cells as a script, which shows more about a crash:",
                "$ jupyter nbconvert --to script NOTEBOOK.ipynb && python -X faulthandler NOTEBOOK.py",
            ),
            Advice(
                "Load less at once: smaller batches, fewer workers, del what isn't needed:", "del data; gc.collect()"
            ),
        ),
        Family.HOST,
        resource=Resource.RAM,
        likely_title="The notebook kernel died, most likely because RAM ran out",
        is_sure=False,
    ),
    Cause(
        FailureKind.OOM_KILL,
        "The process was killed because RAM ran out",
        "When RAM is used up or a limit is reached, the system ends a large process with signal 9 (exit code 137), and "
        "Python can't report anything. A manual kill -9 looks the same.",
        (common.KERNEL_LOG, common.FEWER_WORKERS, common.WATCH),
        Family.HOST,
        resource=Resource.RAM,
        likely_title="The process was killed, most likely because RAM ran out",
        is_sure=False,
        lint_rules=("dataset-in-memory", "loss-keeps-graph"),
    ),
    Cause(
        FailureKind.HOST_BUDGET,
        "The command was stopped because it exceeded its RAM budget",
        "`oomph run --budget` stops a command that uses more RAM than its budget.",
        (
            Advice("Raise the budget:", "$ oomph run --budget ram=SIZE -- COMMAND"),
            common.FEWER_WORKERS,
            common.NO_CACHE,
        ),
        Family.HOST,
        resource=Resource.RAM,
        lint_rules=("dataset-in-memory", "loss-keeps-graph"),
    ),
    Cause(
        FailureKind.HOST_FULL,
        "The command was stopped because RAM was about to run out",
        "RAM or the container's limit was nearly full. `oomph run` stops its command then, because the kernel would "
        "kill it, or another process, without a message.",
        (
            common.FEWER_WORKERS,
            common.NO_CACHE,
            Advice("Or leave it to the kernel:", "$ oomph run --no-guard-ram -- COMMAND"),
        ),
        Family.HOST,
        resource=Resource.RAM,
        lint_rules=("dataset-in-memory", "loss-keeps-graph"),
    ),
    Cause(
        FailureKind.SCHEDULER_KILL,
        "The job was stopped because it used more RAM than it was allowed to",
        "Slurm, PBS, LSF, HTCondor, Kubernetes, Docker and Ray allow a job only the memory that it requested, and kill "
        "it beyond that.",
        (
            Advice(
                "Request more memory: --mem for Slurm, -l mem for PBS, -M for LSF, request_memory for HTCondor, "
                "resources.limits.memory for Kubernetes.",
                "#SBATCH --mem=64G",
            ),
            common.FEWER_WORKERS,
            common.WATCH,
        ),
        Family.HOST,
        resource=Resource.RAM,
        lint_rules=("dataset-in-memory",),
    ),
    Cause(
        FailureKind.WINDOWS_ABORT,
        "Windows ended the process (0xC0000409)",
        "0xC0000409 is how Windows reports abort() and a failed check in compiled code. In training it mostly means "
        "that a library could not allocate memory, or that two libraries don't match; the code doesn't say which.",
        (
            Advice(
                "Try fewer workers and a smaller batch once: if that works, the cause is memory.",
                "DataLoader(dataset, batch_size=4, num_workers=0)",
            ),
            common.PAGE_FILE,
            Advice("Find the library that aborts:", "$ python -X faulthandler train.py"),
        ),
        Family.HOST,
        likely_title="Windows ended the process (0xC0000409), most likely because a library aborted: it may be memory",
        is_sure=False,
    ),
)
