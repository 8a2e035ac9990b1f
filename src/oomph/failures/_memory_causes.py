"""Causes of failures that are about memory, of memory symptoms, and of numerical errors."""

from __future__ import annotations

from ._kinds import Cause, FailureKind, Family

_USE_LESS_GPU_MEMORY = (
    (
        "Use smaller micro-batches and accumulate their gradients: oomph.guard splits a step that doesn't fit and "
        "keeps the effective batch size."
    ),
    "Use mixed precision (bf16) and activation checkpointing.",
    "Predict what a setting needs before you run it:",
    "$ oomph predict FILE.py:FUNCTION --gpu NAME --batch N",
)
_SPLIT_STEP = "Use smaller micro-batches: oomph.guard splits such a step too."
_WATCH = ("Watch the memory while it runs:", "$ oomph watch PID")
_USE_LESS_RAM = (
    "Use fewer loader workers (num_workers) and a smaller prefetch_factor: each worker has its own batches in memory.",
    "Turn off caching of the dataset in RAM, or cache it on disk.",
    "See which limits apply to host memory here:",
    "$ oomph doctor",
)
_USE_LESS_SHM = (
    "Use fewer loader workers, a smaller prefetch_factor, or num_workers=0.",
    "$ docker run --shm-size=8g …",
    'On Kubernetes, mount an emptyDir with "medium: Memory" at /dev/shm.',
    "$ oomph doctor",
)
_KERNEL_LOG = ("Check whether the kernel killed it:", "$ sudo dmesg -T | grep -i -E 'out of memory|oom-kill'")

_DEVICE = (
    Cause(
        FailureKind.CUDA_OOM,
        "The GPU ran out of memory",
        "torch's allocator requested a block from the driver, and no memory was left even after the allocator had "
        "released its cached blocks.",
        _USE_LESS_GPU_MEMORY,
    ),
    Cause(
        FailureKind.HIP_OOM,
        "The AMD GPU ran out of memory",
        "torch's allocator requested a block from ROCm, and no memory was left even after the allocator had released "
        "its cached blocks.",
        _USE_LESS_GPU_MEMORY,
    ),
    Cause(
        FailureKind.MPS_OOM,
        "The Apple GPU reached its memory limit",
        "The GPU shares RAM with all other programs, and torch stops allocating at a high-water mark.",
        (
            *_USE_LESS_GPU_MEMORY,
            "Close other programs: they use the same memory.",
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 removes the limit, but then the system may swap or freeze.",
        ),
    ),
    Cause(
        FailureKind.XPU_OOM,
        "The Intel GPU ran out of memory",
        "torch's allocator requested a block from the Level Zero driver, and no memory was left.",
        (*_USE_LESS_GPU_MEMORY, "Call torch.xpu.empty_cache() to release cached blocks."),
    ),
    Cause(
        FailureKind.DRIVER_OOM,
        "The CUDA driver ran out of memory",
        "The driver itself, not torch's allocator, found no memory: for a CUDA context, a library's buffers or NCCL's "
        "channels. The GPU was already full, mostly because of other processes, or a kernel was loaded when almost no "
        "memory was left.",
        (
            "List the processes on the GPU:",
            "$ nvidia-smi",
            "Leave a few hundred MiB free: torch.cuda.set_per_process_memory_fraction(0.95).",
            *_USE_LESS_GPU_MEMORY,
        ),
    ),
    Cause(
        FailureKind.LIBRARY_OOM,
        "A CUDA library ran out of memory",
        "cuBLAS, cuDNN and similar libraries allocate their own handles and workspaces. The allocation failed, and the "
        "library reported it with its own error code. It is an ordinary out-of-memory error.",
        (
            "Leave a few hundred MiB free for the libraries: torch.cuda.set_per_process_memory_fraction(0.95).",
            *_USE_LESS_GPU_MEMORY,
        ),
    ),
    Cause(
        FailureKind.LIBRARY_ERROR,
        "A CUDA library failed, probably because memory ran out",
        "On a nearly full GPU, cuBLAS can't create its handle and cuDNN finds no plan whose workspace fits. They "
        "report this as not initialized, not supported or an internal error. Less often the installation is broken, or "
        "an earlier index out of range has corrupted the CUDA context.",
        (
            "Try half the batch size once: if that works, the cause is memory.",
            "If it fails at any size, run on the CPU or with CUDA_LAUNCH_BLOCKING=1 to find an earlier error.",
            *_USE_LESS_GPU_MEMORY,
        ),
    ),
    Cause(
        FailureKind.FRAMEWORK_OOM,
        "Another framework ran out of GPU memory",
        "TensorFlow, JAX, CuPy, ONNX Runtime, Paddle and vLLM have their own allocators. Some of them reserve most of "
        "the GPU when they start.",
        (
            (
                "In a process that also uses torch, limit them: TF_FORCE_GPU_ALLOW_GROWTH=true, "
                "XLA_PYTHON_CLIENT_PREALLOCATE=false."
            ),
            "Use smaller batches.",
        ),
    ),
    Cause(
        FailureKind.TOO_MANY_ELEMENTS,
        "A tensor has too many elements for the operation",
        "Some CUDA operations use 32-bit indices, up to 2,147,483,647 elements. They fail on larger tensors even if "
        "memory is free.",
        (_SPLIT_STEP,),
    ),
)

_HOST = (
    Cause(
        FailureKind.CPU_OOM,
        "torch could not allocate host memory",
        "torch requested RAM and the system refused: because of Windows' commit limit, a limit on the process "
        "(ulimit -v, ulimit -d), or a size that no machine has.",
        (_SPLIT_STEP, *_USE_LESS_RAM),
    ),
    Cause(
        FailureKind.MEMORY_ERROR,
        "Python or NumPy could not allocate host memory",
        "The system refused an allocation in RAM. On Linux this happens only with a limit on the process or for an "
        "impossible size; otherwise the kernel kills the process later.",
        _USE_LESS_RAM,
    ),
    Cause(
        FailureKind.BAD_ALLOC,
        "A C++ library could not allocate host memory",
        "C++ code (torch, OpenCV, image decoders) raises std::bad_alloc when an allocation in RAM fails.",
        _USE_LESS_RAM,
    ),
    Cause(
        FailureKind.ENOMEM,
        "The system refused memory to a system call",
        "Starting a process or mapping a file needs committed memory (errno 12). The fork of a large process can be "
        "refused although little would be copied.",
        (
            *_USE_LESS_RAM,
            "If the commit limit is the problem and RAM is free:",
            "$ sudo sysctl vm.overcommit_memory=1",
        ),
    ),
    Cause(
        FailureKind.ADDRESS_SPACE,
        "The process reached its address-space limit",
        "A library or file could not be mapped because of `ulimit -v`. torch with CUDA maps far more than it uses.",
        ("$ ulimit -v unlimited", "$ oomph doctor"),
    ),
    Cause(
        FailureKind.COMMIT_LIMIT,
        "The paging file is too small",
        "Windows commits memory up to RAM plus page file, even if RAM is free. Every loader worker is a new process "
        "that imports torch, and Windows commits the full size of the CUDA libraries for each.",
        (
            "Use fewer loader workers: 0, 1 or 2, also for validation.",
            "Let Windows manage the page file, or enlarge it: System > Advanced > Performance > Virtual memory.",
            "$ oomph doctor --workers 2",
        ),
    ),
    Cause(
        FailureKind.PINNED,
        "Pinned host memory could not be allocated",
        "pin_memory=True locks batches in RAM. Locked memory can't be swapped and is limited (ulimit -l, WSL), and "
        "registering it fails if the CUDA context is corrupted.",
        (
            "Use pin_memory=False: it costs a few percent at most unless loading is the bottleneck.",
            "Use a smaller prefetch_factor or fewer workers.",
            "$ ulimit -l unlimited",
        ),
    ),
    Cause(
        FailureKind.NOTEBOOK_DIED,
        "The notebook kernel died, most likely because RAM ran out",
        "A notebook only sees that its kernel process has ended. Mostly the system killed it because RAM was full, and "
        "nothing in the notebook says so. A crash of a compiled library looks the same.",
        (
            *_KERNEL_LOG,
            "Run the same cells as a script: it shows more about a crash.",
            *_USE_LESS_RAM,
            *_WATCH,
        ),
    ),
    Cause(
        FailureKind.OOM_KILL,
        "The kernel killed the process because RAM ran out",
        "Linux allocates memory lazily. When RAM or the container's limit is full, the kernel kills the largest "
        "process with signal 9 (exit code 137), and Python can't report anything. A manual kill -9 looks the same.",
        (*_KERNEL_LOG, *_USE_LESS_RAM, *_WATCH),
    ),
    Cause(
        FailureKind.SCHEDULER_KILL,
        "The scheduler killed the job because it used too much RAM",
        "Slurm, PBS, LSF, HTCondor, Kubernetes and Ray allow a job only the memory that it requested, and kill it "
        "beyond that.",
        (
            (
                "Request more memory: --mem for Slurm, -l mem for PBS, -M for LSF, request_memory for HTCondor, "
                "resources.limits.memory for Kubernetes."
            ),
            *_USE_LESS_RAM,
            *_WATCH,
        ),
    ),
)

_WORKERS = (
    Cause(
        FailureKind.WORKER_KILLED,
        "A loader worker was killed, almost certainly because RAM ran out",
        "When RAM or the container's limit is full, the kernel kills a large process, often a worker. The memory of "
        "workers grows as they touch Python objects that they share with the parent.",
        (
            *_USE_LESS_RAM,
            "Store lists of paths and labels as arrays instead of Python objects: touching an object copies its page.",
            *_WATCH,
        ),
    ),
    Cause(
        FailureKind.WORKER_BUS_ERROR,
        "A loader worker died with a bus error because /dev/shm is full",
        "Workers pass batches through shared memory. Docker gives a container 64 MiB of it by default, and writing "
        "beyond that is a bus error.",
        _USE_LESS_SHM,
    ),
    Cause(
        FailureKind.WORKER_EXITED,
        "A loader worker exited without an error message",
        "Mostly the kernel killed it because RAM ran out, or shared memory was full. Otherwise a decoder crashed in "
        "it. The error of the parent process doesn't show which.",
        ("Run once with num_workers=0 to see the worker's own error.", *_USE_LESS_RAM, *_WATCH),
    ),
    Cause(
        FailureKind.SHM_FULL,
        "Shared memory is full",
        "Batches from loader workers and NCCL's buffers are in /dev/shm, and no space was left there.",
        (*_USE_LESS_SHM, "Remove files of dead runs:", "$ ls -la /dev/shm"),
    ),
    Cause(
        FailureKind.OPEN_FILES,
        "Too many open files",
        "Each tensor from a worker has a file descriptor until it is freed. Tensors that are kept in a list exceed "
        "`ulimit -n`. The amount of memory is not the problem.",
        (
            "$ ulimit -n 65536",
            'Or share tensors by file name: torch.multiprocessing.set_sharing_strategy("file_system").',
            "Don't keep tensors of past batches; copy those you need (tensor.clone()).",
        ),
    ),
)

_RANKS = (
    Cause(
        FailureKind.RANK_TIMEOUT,
        "A rank waited for another rank until the timeout",
        "A collective operation needs every rank. One of them didn't take part: it died, mostly because memory ran "
        "out, or it is still busy. This message is from a rank that waited; the cause is in the log of the missing "
        "rank.",
        (
            "Check the logs of all other ranks at the time of the last step:",
            "$ oomph explain LOG_OF_THE_OTHER_RANK",
            "Use oomph.guard: when a rank runs out of memory, all ranks split the step in the same way.",
        ),
    ),
    Cause(
        FailureKind.PEER_DIED,
        "Another process of the job died",
        "The connection to another rank broke, or the launcher stopped all ranks because one has failed.",
        (
            "Find the first error in the logs of the other ranks:",
            "$ torchrun --redirects 3 --log-dir logs …",
            "$ oomph explain LOG_OF_THE_OTHER_RANK",
        ),
    ),
)

_SYMPTOMS = (
    Cause(
        FailureKind.THRASHING,
        "The allocator is thrashing: steps run, but barely fit",
        "The allocator repeatedly finds no block, releases all cached blocks to the driver and allocates again. Each "
        "retry waits milliseconds for the GPU, and cuDNN falls back to slower plans.",
        ("Use slightly smaller micro-batches: the steps become faster.", _USE_LESS_GPU_MEMORY[0]),
    ),
    Cause(
        FailureKind.DEVICE_LEAK,
        "Device memory leaks: it grows with every step",
        "Something keeps tensors alive: a list of losses with their graphs, hooks, a growing cache, retained graphs.",
        (
            "Log loss.item() or loss.detach(), never the loss itself.",
            "Clear lists of outputs at the end of each epoch, and remove hooks.",
            "Find it with torch.cuda.memory._record_memory_history() and a snapshot after two epochs.",
        ),
    ),
    Cause(
        FailureKind.HOST_LEAK,
        "Host memory leaks: it grows with every step",
        "Something keeps objects alive: a list of losses or predictions, or an unbounded cache. Or loader workers copy "
        "the pages of Python objects that they touch.",
        (
            "Keep numbers instead of tensors, and limit the size of every cache.",
            "Store lists of paths and labels as arrays; persistent_workers=False starts new workers each epoch.",
        ),
    ),
    Cause(
        FailureKind.FRAGMENTATION,
        "Memory is fragmented: reserved, but in blocks that are too small",
        "The allocator has cached blocks that no tensor uses, and none is large enough for the request.",
        (
            "$ export PYTORCH_ALLOC_CONF=expandable_segments:True",
            "Before torch 2.9 the variable is PYTORCH_CUDA_ALLOC_CONF. Windows and WSL don't support it.",
            "Use batches of one shape: they cause less fragmentation than batches of many shapes.",
        ),
    ),
    Cause(
        FailureKind.OTHER_PROCESS,
        "Another process uses GPU memory",
        "A notebook, an older run that is still alive, a desktop or another user occupies part of the GPU.",
        ("$ nvidia-smi", "Stop it, wait for it, or use another GPU with CUDA_VISIBLE_DEVICES."),
    ),
    Cause(
        FailureKind.MEMORY_CAP,
        "The process may use only a fraction of the GPU",
        "A memory fraction, or a server that partitions the GPU, refuses memory that is free on the card.",
        ("Raise the fraction: torch.cuda.set_per_process_memory_fraction(1.0).",),
    ),
    Cause(
        FailureKind.SPILL,
        "GPU memory spills into RAM",
        "The Windows driver (also under WSL) moves data that doesn't fit on the card to RAM, behind the PCIe bus. It "
        "reports no error, and steps take 10 to 100 times as long.",
        (
            (
                "Cap torch below the card's memory, so that it fails or splits instead of slowing down: "
                "torch.cuda.set_per_process_memory_fraction(0.9)."
            ),
            'In the NVIDIA control panel, set "CUDA - Sysmem Fallback Policy" to "Prefer No Sysmem Fallback".',
            _USE_LESS_GPU_MEMORY[0],
        ),
    ),
    Cause(
        FailureKind.PAGING,
        "The machine is swapping memory to disk",
        "RAM is full, and the system moves pages to disk. Every page that is read back blocks a thread for "
        "milliseconds.",
        _USE_LESS_RAM,
    ),
    Cause(
        FailureKind.STARVED,
        "Steps wait for data",
        "The loader is slower than the training steps, because reading or decoding is slow. Memory is not the problem.",
        (
            "Use more loader workers, up to the number of cores, if RAM allows.",
            "Decode smaller images, cache on a fast disk, or move augmentation to the GPU.",
        ),
    ),
    Cause(
        FailureKind.UNEXPECTED_END,
        "The run ended unexpectedly",
        "The Record stops without an end and without an error: the process was killed or crashed, or the machine went "
        "down.",
        ("Check the system log of that time:", "$ sudo dmesg -T | tail -n 50", "$ oomph explain LOG"),
    ),
)

_NUMERICS = (
    Cause(
        FailureKind.NON_FINITE_LOSS,
        "The loss is NaN or infinite",
        "A value left the range of the precision, or a division by zero or a logarithm of zero occurred. Memory is not "
        "the problem, and a smaller batch doesn't fix it.",
        (
            "Lower the learning rate or use a longer warmup, and clip gradients.",
            "With fp16, switch to bf16 or compute the loss in fp32.",
            "Find the operation: torch.autograd.set_detect_anomaly(True) for a few steps.",
            "Check for broken samples: empty boxes, NaN in images.",
        ),
    ),
    Cause(
        FailureKind.NON_FINITE_GRADIENTS,
        "Gradients are NaN or infinite",
        "The backward pass left the range of the precision. A step with such gradients corrupts the weights.",
        (
            "Clip gradients, and lower the learning rate.",
            "With fp16, use a gradient scaler; bf16 needs none.",
            "Resume from the last checkpoint before it.",
        ),
    ),
    Cause(
        FailureKind.SKIPPED_STEPS,
        "The gradient scaler skips many steps",
        "Gradients overflow in fp16 at every scale, and skipped steps learn nothing. A few skipped steps at the start "
        "are normal.",
        (
            "Use bf16 if the GPU supports it (compute capability 8.0 and later).",
            "Compute the loss and layers with large sums in fp32; clip gradients after unscale_().",
        ),
    ),
)

_RETRYABLE = {
    FailureKind.CUDA_OOM,
    FailureKind.HIP_OOM,
    FailureKind.MPS_OOM,
    FailureKind.XPU_OOM,
    FailureKind.DRIVER_OOM,
    FailureKind.LIBRARY_OOM,
    FailureKind.LIBRARY_ERROR,
    FailureKind.TOO_MANY_ELEMENTS,
    FailureKind.CPU_OOM,
    FailureKind.MEMORY_ERROR,
    FailureKind.BAD_ALLOC,
}

_FAMILIES = (
    (Family.DEVICE, _DEVICE),
    (Family.HOST, _HOST),
    (Family.WORKERS, _WORKERS),
    (Family.RANKS, _RANKS),
    (Family.SYMPTOM, _SYMPTOMS),
    (Family.NUMERICS, _NUMERICS),
)

MEMORY_CAUSES = tuple(
    Cause(cause.kind, cause.title, cause.why, cause.fix, family, cause.kind in _RETRYABLE)
    for family, causes in _FAMILIES
    for cause in causes
)
