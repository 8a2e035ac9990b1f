"""The one table of causes that are about memory, and of symptoms: what each is, how it comes about, what to do."""

from __future__ import annotations

from ._kind import Cause, FailureKind, Family

_SMALLER = (
    (
        "Train in smaller pieces that add up to the same batch: oomph.guard splits a step that doesn't fit, or halve "
        "the batch size and accumulate gradients over two."
    ),
    "See beforehand what a batch needs, and what would help most:",
    "$ oomph predict FILE.py:FUNCTION --gpu NAME --batch N",
    "Use mixed precision (bf16), and checkpoint activations.",
)
_WATCH = ("See who holds what while it runs:", "$ oomph watch PID")
_HOST = (
    "Use fewer loader workers (num_workers) and a smaller prefetch_factor: each worker holds batches of its own.",
    "Switch off caching of the dataset in RAM, or cache on disk.",
    "See what limits host memory here:",
    "$ oomph doctor",
)
_SHM = (
    "Use fewer loader workers or a smaller prefetch_factor, or num_workers=0.",
    "$ docker run --shm-size=8g …",
    'On Kubernetes, mount an emptyDir with "medium: Memory" at /dev/shm.',
    "$ oomph doctor",
)

_DEVICE = (
    Cause(
        FailureKind.CUDA_OOM,
        "The GPU ran out of memory",
        "torch's allocator asked the driver for a block and there was none left, even after it had given back what it "
        "kept in reserve.",
        _SMALLER,
    ),
    Cause(
        FailureKind.HIP_OOM,
        "The AMD GPU ran out of memory",
        "torch's allocator asked ROCm for a block and there was none left, even after it had given back what it kept "
        "in reserve.",
        _SMALLER,
    ),
    Cause(
        FailureKind.MPS_OOM,
        "The Apple GPU reached its share of memory",
        "The GPU shares RAM with everything else, and torch stops at a high-water mark of it.",
        (
            *_SMALLER,
            "Close other programs: they use the same memory.",
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts the mark, and the system may then swap or freeze.",
        ),
    ),
    Cause(
        FailureKind.XPU_OOM,
        "The Intel GPU ran out of memory",
        "torch's allocator asked the Level Zero driver for a block and there was none left.",
        (*_SMALLER, "torch.xpu.empty_cache() returns what is kept in reserve."),
    ),
    Cause(
        FailureKind.DRIVER_OOM,
        "The CUDA driver ran out of memory",
        "Not torch's allocator but the driver itself found none: for the context of a process, a library's buffers or "
        "NCCL's channels. It happens when the GPU was already full, mostly by other processes, or when a kernel is "
        "loaded at the limit.",
        (
            "See who holds the GPU's memory:",
            "$ nvidia-smi",
            "Leave a few hundred MiB free: torch.cuda.set_per_process_memory_fraction(0.95).",
            *_SMALLER,
        ),
    ),
    Cause(
        FailureKind.LIBRARY_OOM,
        "A CUDA library could not get memory",
        "cuBLAS, cuDNN or a library like them allocates its own handle or workspace; it found none, and says so in its "
        "own words. It is an ordinary out of memory.",
        (
            "Leave a few hundred MiB free for the libraries: torch.cuda.set_per_process_memory_fraction(0.95).",
            *_SMALLER,
        ),
    ),
    Cause(
        FailureKind.LIBRARY_DISGUISE,
        "A CUDA library failed, probably for want of memory",
        "With the GPU nearly full, cuBLAS can't make its handle and cuDNN finds no plan whose workspace fits; they "
        "report that as not initialized, not supported, or an internal error. Less often the installation is broken, "
        "or an index out of range has spoilt the context before.",
        (
            "Try half the batch once: if that runs, it was memory.",
            "If it fails at any size, run on the CPU or with CUDA_LAUNCH_BLOCKING=1 to find an earlier error.",
            *_SMALLER,
        ),
    ),
    Cause(
        FailureKind.FRAMEWORK_OOM,
        "Another framework ran out of GPU memory",
        "TensorFlow, JAX, CuPy, ONNX Runtime, Paddle or vLLM keep allocators of their own; some of them take most of "
        "the GPU at their start, whatever they use.",
        (
            (
                "In a process with torch, keep them small: TF_FORCE_GPU_ALLOW_GROWTH=true, "
                "XLA_PYTHON_CLIENT_PREALLOCATE=false."
            ),
            "Use smaller batches.",
        ),
    ),
    Cause(
        FailureKind.TOO_MANY_ELEMENTS,
        "A tensor has more elements than the operation can count",
        "Some CUDA operations count with 32 bits, up to 2,147,483,647 elements. Memory may be free; the tensor is too "
        "large all the same.",
        ("Train in smaller pieces: oomph.guard splits such a step too.",),
    ),
)

_HOST_CAUSES = (
    Cause(
        FailureKind.CPU_OOM,
        "The host refused memory to torch",
        "torch asked the system for a block of RAM and was refused: by the commit limit of Windows, by a limit on the "
        "process (ulimit -v, ulimit -d), or because no such amount exists.",
        ("Train in smaller pieces: oomph.guard splits such a step too.", *_HOST),
    ),
    Cause(
        FailureKind.MEMORY_ERROR,
        "Python or NumPy got no memory from the host",
        "An allocation in RAM was refused. On Linux that takes a limit on the process or a size that no machine has; "
        "otherwise the kernel would have killed the process later instead.",
        _HOST,
    ),
    Cause(
        FailureKind.BAD_ALLOC,
        "A C++ library got no memory from the host",
        "std::bad_alloc is how C++ (torch's core, OpenCV, image decoders) says that an allocation in RAM was refused.",
        _HOST,
    ),
    Cause(
        FailureKind.REFUSED_BY_SYSTEM,
        "The system refused memory to a call",
        "Starting a process or mapping a file needs the system's promise of memory (errno 12). Forking a large process "
        "can be refused although little would ever be copied.",
        (*_HOST, "Where the promise is the problem, and not the memory:", "$ sudo sysctl vm.overcommit_memory=1"),
    ),
    Cause(
        FailureKind.ADDRESS_SPACE,
        "The process reached its limit of address space",
        "A library or file could not be mapped under `ulimit -v`; torch with CUDA maps far more than it uses.",
        ("$ ulimit -v unlimited", "$ oomph doctor"),
    ),
    Cause(
        FailureKind.COMMIT_LIMIT,
        "The paging file is too small",
        "Windows promises memory up to RAM plus page file, whatever is free. Every loader worker is a new process that "
        "imports torch, and for each the full size of the CUDA libraries is set aside.",
        (
            "Use fewer loader workers: 0, 1 or 2, also for validation.",
            "Let Windows manage the page file, or make it larger: System > Advanced > Performance > Virtual memory.",
            "$ oomph doctor --workers 2",
        ),
    ),
    Cause(
        FailureKind.PINNED,
        "Pinned host memory could not be had",
        "pin_memory=True locks batches into RAM. Locked memory can't be swapped, is limited (ulimit -l, WSL), and "
        "registering it needs the GPU's context to be well.",
        (
            "Use pin_memory=False: it costs a few percent at most where loading isn't the bottleneck.",
            "Use a smaller prefetch_factor or fewer workers.",
            "$ ulimit -l unlimited",
        ),
    ),
    Cause(
        FailureKind.NOTEBOOK_DIED,
        "The notebook's process is gone, most likely killed for its RAM",
        "A notebook only sees that the process behind it, which it calls kernel, has ended. Mostly the system killed "
        "it because RAM was full, which nobody else writes down there; a crash of a compiled library looks the same.",
        (
            "See whether it was killed:",
            "$ sudo dmesg -T | grep -i -E 'out of memory|oom-kill'",
            "Run the same cells as a script: a crash says more there.",
            *_HOST,
            *_WATCH,
        ),
        Family.HOST,
    ),
    Cause(
        FailureKind.HOST_KILL,
        "The kernel killed the process for using too much RAM",
        "Linux gives memory out before it has it. When RAM, or the limit of the container, is full, it kills the "
        "largest process with signal 9 (exit code 137), and Python has no chance to say anything. Somebody's kill -9 "
        "looks the same.",
        (
            "See whether it was the kernel:",
            "$ sudo dmesg -T | grep -i -E 'out of memory|oom-kill'",
            *_HOST,
            *_WATCH,
        ),
    ),
    Cause(
        FailureKind.SCHEDULER_KILL,
        "The scheduler ended the job for using too much RAM",
        "Slurm, PBS, LSF, HTCondor, Kubernetes or Ray allow a job only the memory it asked for, and end it beyond "
        "that.",
        (
            (
                "Ask for more: --mem for Slurm, -l mem for PBS, -M for LSF, request_memory for HTCondor, "
                "resources.limits.memory for Kubernetes."
            ),
            *_HOST,
            *_WATCH,
        ),
    ),
)

_WORKERS = (
    Cause(
        FailureKind.WORKER_KILLED,
        "A loader worker was killed, almost surely for RAM",
        "The kernel kills the process that frees most when RAM or the container's limit is full, and workers are many. "
        "Their memory grows as they touch Python objects shared with the parent.",
        (
            *_HOST,
            "Hold lists of paths and labels as arrays, not as Python objects: touching an object copies its page.",
            *_WATCH,
        ),
    ),
    Cause(
        FailureKind.WORKER_BUS_ERROR,
        "Shared memory (/dev/shm) is full: a loader worker died of a bus error",
        "Workers hand batches over through shared memory. Docker gives a container 64 MiB of it unless told otherwise; "
        "writing beyond that is a bus error.",
        _SHM,
    ),
    Cause(
        FailureKind.WORKER_GONE,
        "A loader worker died without a word",
        "Mostly the kernel killed it for RAM, or shared memory was full; otherwise a decoder crashed in it. The error "
        "of the parent doesn't tell which.",
        ("See the worker's own error: run once with num_workers=0.", *_HOST, *_WATCH),
    ),
    Cause(
        FailureKind.SHM_FULL,
        "Shared memory is full",
        "Batches from loader workers, and NCCL's buffers, lie in /dev/shm, and no space was left there.",
        (*_SHM, "Remove what dead runs left behind:", "$ ls -la /dev/shm"),
    ),
    Cause(
        FailureKind.OPEN_FILES,
        "Too many open files",
        "Each tensor that a worker hands over holds a file descriptor until it is freed; kept in a list, they run into "
        "`ulimit -n`. It looks like a loader's memory problem and is none of size.",
        (
            "$ ulimit -n 65536",
            'Or hand tensors over by name: torch.multiprocessing.set_sharing_strategy("file_system").',
            "Keep no tensors of past batches; copy what must stay (tensor.clone()).",
        ),
    ),
)

_RANKS = (
    Cause(
        FailureKind.RANK_TIMEOUT,
        "A rank waited for another one until the time-out",
        "A collective operation needs every rank. One of them did not come: it died, mostly of memory, or it is still "
        "busy. The message is of the one that waited; the cause is in the log of the one that is missing.",
        (
            "Look into the log of every other rank, at the time of the last step:",
            "$ oomph explain LOG_OF_THE_OTHER_RANK",
            "oomph.guard lets all ranks split alike when one runs out of memory.",
        ),
    ),
    Cause(
        FailureKind.PEER_DIED,
        "Another process of the job died, and took this one with it",
        "The connection to another rank broke, or the launcher ends all ranks because one has failed.",
        (
            "Look for the first error in the logs of the other ranks:",
            "$ torchrun --redirects 3 --log-dir logs …",
            "$ oomph explain LOG_OF_THE_OTHER_RANK",
        ),
    ),
)

_SYMPTOMS = (
    Cause(
        FailureKind.THRASH,
        "The allocator thrashes: steps run, but barely fit",
        "Again and again the allocator finds no block, gives everything in reserve back to the driver and asks anew. "
        "Each time costs milliseconds of waiting for the GPU, and cuDNN falls back to slower plans.",
        ("Use slightly smaller pieces: the steps get faster.", *_SMALLER[:1]),
    ),
    Cause(
        FailureKind.DEVICE_LEAK,
        "Device memory leaks: it grows with every step",
        "Something keeps tensors alive: a list of losses with their graphs, hooks, a growing cache, retained graphs.",
        (
            "Log loss.item() or loss.detach(), never the loss itself.",
            "Clear lists of outputs at the end of an epoch, and remove hooks.",
            "Find it: torch.cuda.memory._record_memory_history() and a snapshot after two epochs.",
        ),
    ),
    Cause(
        FailureKind.HOST_LEAK,
        "Host memory leaks: it grows with every step",
        "Something keeps objects: a list of losses or predictions, a cache without a bound; or loader workers copy the "
        "pages of Python objects as they touch them.",
        (
            "Keep numbers, not tensors, and bound every cache.",
            "Hold lists of paths and labels as arrays; persistent_workers=False starts workers afresh each epoch.",
        ),
    ),
    Cause(
        FailureKind.FRAGMENTATION,
        "Memory is fragmented: reserved, but in pieces too small",
        "The allocator holds blocks that no tensor uses, and none of them is large enough for what is asked.",
        (
            "$ export PYTORCH_ALLOC_CONF=expandable_segments:True",
            "Before torch 2.9 the variable is PYTORCH_CUDA_ALLOC_CONF; not on Windows or WSL.",
            "Batches of one shape leave fewer holes than those of many.",
        ),
    ),
    Cause(
        FailureKind.OTHER_PROCESS,
        "Another process holds memory of the GPU",
        "A notebook, an older run that did not end, a desktop or another user: what they hold is not there for you.",
        ("$ nvidia-smi", "End it, wait for it, or use another GPU with CUDA_VISIBLE_DEVICES."),
    ),
    Cause(
        FailureKind.CAPPED,
        "The process may use only a share of the GPU",
        "A memory fraction, or a server that divides the GPU, refuses memory that is free on the card.",
        ("Raise the share: torch.cuda.set_per_process_memory_fraction(1.0).",),
    ),
    Cause(
        FailureKind.SPILL,
        "GPU memory spills into the computer's RAM",
        "The Windows driver (also under WSL) moves what doesn't fit into shared memory, behind the PCIe bus. No error "
        "ever comes; steps take 10 to 100 times as long.",
        (
            (
                "Cap torch below the card's memory, so that it fails or splits instead of crawling: "
                "torch.cuda.set_per_process_memory_fraction(0.9)."
            ),
            'In the NVIDIA control panel, set "CUDA - Sysmem Fallback Policy" to "Prefer No Sysmem Fallback".',
            *_SMALLER[:1],
        ),
    ),
    Cause(
        FailureKind.PAGING,
        "The machine pages: RAM is moved to disk and back",
        "RAM is full and the system uses the disk instead; every page that comes back stops a thread for milliseconds.",
        _HOST,
    ),
    Cause(
        FailureKind.STARVED,
        "The GPU is starved: steps wait for data",
        "Steps wait for the loader: memory isn't short, decoding or reading is slow.",
        (
            "Use more loader workers, up to the number of cores, if RAM allows.",
            "Decode smaller images, cache on a fast disk, move augmentation to the GPU.",
        ),
    ),
    Cause(
        FailureKind.UNCLEAN_END,
        "The run ended without a farewell",
        "The Record stops, and neither its end nor an error was written: the process was killed, crashed, or the "
        "machine went down.",
        ("See what the system says of that moment:", "$ sudo dmesg -T | tail -n 50", "$ oomph explain LOG"),
    ),
)

_NUMBERS = (
    Cause(
        FailureKind.BAD_LOSS,
        "The loss is NaN or infinite",
        "Numbers left the range of the precision, or a division by zero or a logarithm of zero happened. It isn't "
        "memory, and a smaller batch doesn't mend it.",
        (
            "Lower the learning rate or warm it up longer, and clip gradients.",
            "Under fp16, use bf16 or keep the loss in fp32.",
            "Find the operation: torch.autograd.set_detect_anomaly(True) for a few steps.",
            "Look for broken samples: empty boxes, NaN in images.",
        ),
    ),
    Cause(
        FailureKind.BAD_GRADIENTS,
        "Gradients are NaN or infinite",
        "Backward left the range of the precision. Once an optimizer has taken such a step the weights are spoilt.",
        (
            "Clip gradients, and lower the learning rate.",
            "Under fp16, use a scaler; or bf16, which needs none.",
            "Go back to the last checkpoint from before.",
        ),
    ),
    Cause(
        FailureKind.SKIPPED_STEPS,
        "The scaler skips steps in a row",
        "Gradients overflow in fp16 whatever the scale; skipped steps learn nothing. A few at the start are normal.",
        (
            "Use bf16 where the GPU has it (compute capability 8.0 and later).",
            "Keep the loss, and layers with large sums, in fp32; clip gradients after unscale_().",
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
    FailureKind.LIBRARY_DISGUISE,
    FailureKind.TOO_MANY_ELEMENTS,
    FailureKind.CPU_OOM,
    FailureKind.MEMORY_ERROR,
    FailureKind.BAD_ALLOC,
}

_GROUPS = (
    (Family.DEVICE, _DEVICE),
    (Family.HOST, _HOST_CAUSES),
    (Family.WORKERS, _WORKERS),
    (Family.RANKS, _RANKS),
    (Family.SYMPTOM, _SYMPTOMS),
    (Family.NUMBERS, _NUMBERS),
)

MEMORY_CAUSES = tuple(
    Cause(cause.kind, cause.title, cause.why, cause.fix, family, cause.kind in _RETRYABLE)
    for family, causes in _GROUPS
    for cause in causes
)
