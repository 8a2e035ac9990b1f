"""What failures look like in a text: for each kind, words that are always there, and the form around them.

The words are looked for first, because that is fast in logs of any length; the form decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._kind import Kind


@dataclass(frozen=True)
class Rule:
    """One form of one failure: `words` as they stand in the text, and the `form` that must hold around them."""

    kind: Kind
    words: str
    form: re.Pattern[str] | None = None


# How the line of an exception begins: a prefix of the logger or rank, then a dotted name.
_RAISED = r"(?:^|[\s|\]:>])[\w.]*(?:Error|Exception|Exit)\w*: "


# How the status of a program that ended is told: by shells, runners, launchers and subprocess.
_STATUS = r"(?i:exit(?:ed)?[ _-]?(?:with )?(?:code|status)|return ?code|non-zero exit status)\s{0,2}[:=]?\s{0,8}"


def _rule(kind: Kind, words: str, form: str | None = None) -> Rule:
    return Rule(kind, words, re.compile(form, re.MULTILINE) if form else None)


# Of two rules that fit one line the first counts.
RULES: tuple[Rule, ...] = (
    # False friends: words of memory that mean something else.
    _rule(Kind.BROKEN_LIBRARY, "cannot allocate memory in static TLS block"),
    _rule(Kind.ILLEGAL_ACCESS, "illegal memory access"),
    _rule(Kind.ILLEGAL_ACCESS, "misaligned address"),
    _rule(Kind.KERNEL_RESOURCES, "out of resource: shared memory"),
    _rule(Kind.KERNEL_RESOURCES, "too many resources requested for launch"),
    _rule(Kind.DEVICE_ASSERT, "device-side assert triggered"),
    _rule(Kind.DEVICE_ASSERT, "Assertion `", r"^.*\.cu(?:h)?:\d+.*(?:block|thread): \[.*Assertion `"),
    # Pinned memory: the words of the driver, but in the thread that pins.
    _rule(
        Kind.PINNED,
        "in pin memory thread",
        r"in pin memory thread for device[\s\S]{0,4000}?(?:out of memory|OS call failed)",
    ),
    _rule(Kind.PINNED, "Pin memory thread exited unexpectedly"),
    _rule(Kind.PINNED, "cudaHostAlloc", r"cudaHost(?:Alloc|Register).{0,80}(?:fail|out of memory|error)"),
    _rule(Kind.PINNED, "cudaHostRegister", r"cudaHost(?:Alloc|Register).{0,80}(?:fail|out of memory|error)"),
    # Device memory.
    _rule(Kind.CUDA_OOM, "CUDA out of memory", r"CUDA out of memory\.?\s+Tried\s+to\s+allocate"),
    _rule(
        Kind.CUDA_OOM,
        "CUDA out of memory",
        r"(?:^|" + _RAISED + r")CUDA out of memory\b(?!,? (?:error|reduce|try|issue))",
    ),
    _rule(Kind.CUDA_OOM, "CUDA out of memory with batch"),
    _rule(Kind.CUDA_OOM, "CUDA out of memory", r"WARNING\W{1,6}CUDA out of memory"),
    _rule(Kind.CUDA_OOM, "c10::OutOfMemoryError"),
    _rule(Kind.CUDA_OOM, "Allocation on device", r"OutOfMemoryError: Allocation on device"),
    _rule(Kind.HIP_OOM, "HIP out of memory", r"HIP out of memory\.?\s+Tried\s+to\s+allocate"),
    _rule(Kind.HIP_OOM, "HIP error: out of memory"),
    _rule(Kind.HIP_OOM, "hipErrorOutOfMemory"),
    _rule(Kind.MPS_OOM, "MPS backend out of memory"),
    _rule(Kind.MPS_OOM, "kIOGPUCommandBufferCallbackErrorOutOfMemory"),
    _rule(Kind.MPS_OOM, "Invalid buffer size: "),
    _rule(Kind.MPS_OOM, "newBufferWithLength", r"newBufferWithLength[\s\S]{0,300}?length \d+ must not exceed"),
    _rule(Kind.XPU_OOM, "XPU out of memory", r"XPU out of memory\.?\s+Tried\s+to\s+allocate"),
    _rule(Kind.XPU_OOM, "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
    _rule(Kind.XPU_OOM, "UR_RESULT_ERROR_OUT_OF_RESOURCES"),
    _rule(Kind.XPU_OOM, "PI_ERROR_OUT_OF_RESOURCES"),
    _rule(Kind.DRIVER_OOM, "CUDA error: out of memory"),
    _rule(Kind.DRIVER_OOM, "CUDA Error: out of memory"),
    _rule(Kind.DRIVER_OOM, "CUDA driver error: out of memory"),
    _rule(Kind.DRIVER_OOM, "cudaErrorMemoryAllocation"),
    _rule(Kind.DRIVER_OOM, "CUDA_ERROR_OUT_OF_MEMORY"),
    _rule(Kind.DRIVER_OOM, "Cuda failure", r"Cuda failure (?:2 )?'out of memory'"),
    _rule(Kind.DRIVER_OOM, "cuda runtime error (2)"),
    _rule(Kind.LIBRARY_OOM, "CUBLAS_STATUS_ALLOC_FAILED"),
    _rule(Kind.LIBRARY_OOM, "CUDNN_STATUS_ALLOC_FAILED"),
    _rule(Kind.LIBRARY_OOM, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    _rule(Kind.LIBRARY_OOM, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    _rule(Kind.LIBRARY_OOM, "CUSOLVER_STATUS_ALLOC_FAILED"),
    _rule(Kind.LIBRARY_OOM, "CUSPARSE_STATUS_ALLOC_FAILED"),
    _rule(Kind.LIBRARY_OOM, "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"),
    _rule(Kind.LIBRARY_OOM, "insufficient resources when calling"),
    _rule(Kind.LIBRARY_OOM, "CUFFT_ALLOC_FAILED"),
    _rule(Kind.LIBRARY_OOM, "HIPBLAS_STATUS_ALLOC_FAILED"),
    _rule(Kind.LIBRARY_OOM, "rocblas_status_memory_error"),
    _rule(Kind.LIBRARY_OOM, "miopenStatusAllocFailed"),
    _rule(Kind.LIBRARY_DISGUISE, "CUBLAS_STATUS_NOT_INITIALIZED"),
    _rule(Kind.LIBRARY_DISGUISE, "CUBLAS_STATUS_INTERNAL_ERROR"),
    _rule(Kind.LIBRARY_DISGUISE, "CUDNN_STATUS_NOT_INITIALIZED"),
    _rule(Kind.LIBRARY_DISGUISE, "CUDNN_STATUS_NOT_SUPPORTED"),
    _rule(Kind.LIBRARY_DISGUISE, "CUDNN_STATUS_INTERNAL_ERROR"),
    _rule(Kind.LIBRARY_DISGUISE, "CUSOLVER_STATUS_INTERNAL_ERROR"),
    _rule(Kind.LIBRARY_DISGUISE, "HIPBLAS_STATUS_NOT_INITIALIZED"),
    _rule(Kind.LIBRARY_DISGUISE, "unable to find an engine to execute this computation"),
    _rule(Kind.LIBRARY_DISGUISE, "Unable to find a valid cuDNN algorithm"),
    _rule(Kind.FRAMEWORK_OOM, "OOM when allocating tensor"),
    _rule(Kind.FRAMEWORK_OOM, "RESOURCE_EXHAUSTED: ", r"RESOURCE_EXHAUSTED: .*[Oo]ut of memory"),
    _rule(Kind.FRAMEWORK_OOM, "cupy", r"cupy[\w.]*OutOfMemoryError"),
    _rule(Kind.FRAMEWORK_OOM, "Failed to allocate memory for requested buffer of size"),
    _rule(Kind.FRAMEWORK_OOM, "ResourceExhaustedError:", r"ResourceExhaustedError:[\s\S]{0,200}[Oo]ut of memory"),
    _rule(Kind.FRAMEWORK_OOM, "No available memory for the cache blocks"),
    _rule(Kind.TOO_MANY_ELEMENTS, "INT_MAX", r"not supported for tensors with more than INT_MAX elements"),
    _rule(Kind.TOO_MANY_ELEMENTS, "canUse32BitIndexMath"),
    _rule(Kind.TOO_MANY_ELEMENTS, "must have less than 2**31 elements"),
    # The host.
    _rule(Kind.COMMIT_LIMIT, "WinError 1455"),
    _rule(Kind.COMMIT_LIMIT, "error code: <1455>"),
    _rule(Kind.COMMIT_LIMIT, "(os error 1455)"),
    _rule(Kind.COMMIT_LIMIT, "paging file is too small"),
    _rule(Kind.COMMIT_LIMIT, "0xC0000017"),
    _rule(Kind.COMMIT_LIMIT, "3221225495"),
    _rule(Kind.ADDRESS_SPACE, "failed to map segment from shared object"),
    _rule(Kind.SHM_FULL, "unable to write to file </torch_"),
    _rule(Kind.SHM_FULL, "unable to allocate shared memory"),
    _rule(Kind.SHM_FULL, "unable to mmap", r"unable to mmap \d+ bytes from file </torch_"),
    _rule(Kind.SHM_FULL, "/shm/nccl", r"(?:[Ee]rror|[Ff]ail).*(?:extend|attach|open|creat).*/dev/shm/nccl"),
    _rule(Kind.SHM_FULL, "No space left on device", r"(?:/dev/shm|</torch_|shared memory).*No space left on device"),
    _rule(Kind.SHM_FULL, "No space left on device", r"No space left on device.*(?:/dev/shm|torch_\d+_|/pym-|/psm_)"),
    _rule(Kind.OPEN_FILES, "Too many open files"),
    _rule(Kind.OPEN_FILES, "received 0 items of ancdata"),
    _rule(Kind.CPU_OOM, "DefaultCPUAllocator: ", r"DefaultCPUAllocator: (?:can't allocate|not enough) memory"),
    _rule(Kind.CPU_OOM, "C10 Out of Memory"),
    # What oneDNN says when it gets no memory; about what it can't do at all it speaks of a "primitive descriptor".
    _rule(Kind.CPU_OOM, "could not create a primitive", r"could not create a primitive(?! desc)"),
    _rule(Kind.BAD_ALLOC, "std::bad_alloc"),
    _rule(Kind.MEMORY_ERROR, "_ArrayMemoryError"),
    _rule(Kind.MEMORY_ERROR, "Unable to allocate ", r"Unable to allocate [\d.]+ [KMGTP]iB for an array"),
    _rule(Kind.MEMORY_ERROR, "(-4:Insufficient memory)"),
    _rule(Kind.MEMORY_ERROR, "MemoryError", r"(?:^|[\s|\]:>])MemoryError(?::|\s*$)"),
    _rule(Kind.REFUSED_BY_SYSTEM, "[Errno 12]"),
    _rule(
        Kind.REFUSED_BY_SYSTEM,
        "annot allocate memory",
        r"(?:fork|mmap).*annot allocate memory|[:\]] Cannot allocate memory|annot allocate memory \(os error 12\)",
    ),
    _rule(Kind.REFUSED_BY_SYSTEM, "[Errno 11] Resource temporarily unavailable", r"fork"),
    # Loader workers.
    _rule(Kind.WORKER_BUS_ERROR, "killed by signal: Bus error"),
    _rule(Kind.WORKER_BUS_ERROR, "insufficient shared memory (shm)"),
    _rule(Kind.CRASH, "killed by signal: Segmentation fault"),
    _rule(Kind.CRASH, "killed by signal: Aborted"),
    _rule(Kind.WORKER_KILLED, "is killed by signal: Killed"),
    _rule(Kind.STOPPED, "killed by signal: Terminated"),
    _rule(Kind.STOPPED, "killed by signal: Interrupt"),
    _rule(Kind.WORKER_GONE, "exited unexpectedly", r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"),
    _rule(Kind.WORKER_GONE, "exited unexpectedly with exit code", r"DataLoader worker \(pid \d+\) exited unexpectedly"),
    # What the training process sees of a worker that died while a batch was on its way.
    _rule(
        Kind.WORKER_GONE, "in rebuild_storage_f", r"in rebuild_storage_f[\s\S]{0,3900}?(?:Connection\w+Error|EOFError)"
    ),
    _rule(Kind.WORKER_KILLED, "TerminatedWorkerError"),
    _rule(Kind.WORKER_GONE, "BrokenProcessPool: "),
    _rule(Kind.LOADER_TIMEOUT, "DataLoader timed out after"),
    # Killed from outside.
    _rule(Kind.SCHEDULER_KILL, "oom-kill event", r"[Dd]etected \d+ oom[-_]kill event"),
    _rule(Kind.SCHEDULER_KILL, "oom_kill event", r"[Dd]etected \d+ oom[-_]kill event"),
    _rule(Kind.SCHEDULER_KILL, "memory limit", r"slurmstepd: error: .*[Ee]xceeded (?:job|step) memory limit"),
    _rule(Kind.SCHEDULER_KILL, "OUT_OF_MEMORY", r"(?:State|STATE)[\s:=|]+OUT_OF_MEMORY"),
    _rule(Kind.SCHEDULER_KILL, "OUT_OF_MEMORY", r"\bOUT_OF_MEMORY\s+\d+:\d+"),
    _rule(Kind.SCHEDULER_KILL, "OUT_OF_ME+"),
    _rule(Kind.SCHEDULER_KILL, "Out Of Memory", r"srun: error: .*\btasks? .*Out Of Memory"),
    _rule(Kind.SCHEDULER_KILL, "exceeded limit", r"PBS: job killed: \w*mem \d+\w* exceeded limit"),
    _rule(Kind.SCHEDULER_KILL, "TERM_MEMLIMIT"),
    _rule(Kind.SCHEDULER_KILL, "exceeded request_memory"),
    _rule(Kind.SCHEDULER_KILL, "gone over", r"[Jj]ob has gone over (?:cgroup )?memory limit"),
    _rule(Kind.SCHEDULER_KILL, "h_vmem", r"exceed\w* .{0,40}h_vmem"),
    _rule(Kind.SCHEDULER_KILL, "low on resource: memory"),
    _rule(Kind.SCHEDULER_KILL, "OOMKilled"),
    _rule(Kind.SCHEDULER_KILL, "node running low on memory"),
    _rule(Kind.HOST_KILL, "emory: Kill", r"(?:[Oo]ut of memory|cgroup out of memory): Kill(?:ed)? process \d+"),
    _rule(Kind.HOST_KILL, "emory cgroup out of memory"),
    _rule(Kind.HOST_KILL, "oom-kill:constraint="),
    _rule(Kind.HOST_KILL, "oom_reaper: reaped process"),
    _rule(Kind.HOST_KILL, "killed by the OOM killer"),
    _rule(Kind.HOST_KILL, "with result 'oom-kill'"),
    _rule(Kind.HOST_KILL, "using all available RAM"),
    _rule(Kind.HOST_KILL, "tried to allocate more memory than is available"),
    _rule(Kind.HOST_KILL, "terminated program cc1", r"Killed signal terminated program cc1(?:plus)?\b"),
    _rule(Kind.HOST_KILL, "systemd-oomd", r"systemd-oomd.*[Kk]illed"),
    _rule(
        Kind.HOST_KILL,
        "Killed",
        r"^(?:\S*: line \d+:\s+\d+ |\[\d+\]\S?\s+(?:\d+ )?)?Killed(?:: 9)?(?:\s{2,}\S.*)?\s*$",
    ),
    _rule(Kind.HOST_KILL, "killed", r"^(?:zsh: killed\s|\[\d+\]\s+[+-]?\s*\d*\s*killed\s)"),
    *(
        _rule(Kind.HOST_KILL, words, _STATUS + r"137\b")
        for words in ("ode 137", "ode: 137", "tatus 137", "ode:    137")
    ),
    _rule(Kind.HOST_KILL, "Signal 9 (SIGKILL)"),
    _rule(Kind.HOST_KILL, "SIGKILL", r"(?:terminated with signal|died with <Signals\.|signal: 9,? ?\(?)\s*SIGKILL"),
    *(
        _rule(Kind.HOST_KILL, words, _STATUS + r"-9\b")
        for words in ("ode -9", "ode: -9", "ode  : -9", "tatus -9", "ode=-9")
    ),
    # After the words above, which say why: a notebook only sees that its process is gone.
    _rule(
        Kind.NOTEBOOK_DIED, "ernel", r"[Kk]ernel (?:for .{1,120} )?(?:appears to have died|[Cc]rashed while executing)"
    ),
    _rule(Kind.NOTEBOOK_DIED, "DeadKernelError"),
    _rule(Kind.NOTEBOOK_DIED, "Kernel died", r"^(?:\S+ )?Kernel died(?! before)(?:[.: ]|$)"),
    # Other ranks.
    _rule(Kind.RANK_TIMEOUT, "collective operation timeout"),
    _rule(Kind.RANK_TIMEOUT, "milliseconds before timing out"),
    _rule(Kind.RANK_TIMEOUT, "Timed out waiting", r"Timed out waiting \d+ms for (?:recv|send) operation"),
    _rule(Kind.RANK_TIMEOUT, "wait timeout after", r"wait timeout after \d+ms, keys: "),
    _rule(
        Kind.RANK_TIMEOUT,
        "timed out in ",
        r"[Ss]ocket.*timed out|Timed? ?out .*monitoredBarrier|monitoredBarrier.*timed out",
    ),
    _rule(Kind.RANK_TIMEOUT, "monitoredBarrier", r"monitoredBarrier"),
    _rule(Kind.PEER_DIED, "Connection closed by peer ["),
    _rule(Kind.PEER_DIED, "Connection reset by peer", r"gloo|NCCL|TCPStore|[Rr]ank"),
    _rule(Kind.PEER_DIED, "gloo/transport/"),
    _rule(Kind.PEER_DIED, "ncclRemoteError"),
    _rule(Kind.PEER_DIED, "NCCL communicator was aborted"),
    _rule(Kind.PEER_DIED, "ChildFailedError"),
    _rule(Kind.PEER_DIED, "Sending process", r"Sending process \d+ closing signal SIG"),
    _rule(Kind.PEER_DIED, "recvBytes", r"TCPStore.*recvBytes|recvBytes failed"),
    # Numerical trouble.
    _rule(Kind.BAD_LOSS, "nan", r"[Ll]oss\w*['\"]?\s*(?:is|=|:|\s)\s*(?:tensor\()?nan\b"),
    _rule(Kind.BAD_LOSS, "NaN", r"(?:[Ll]oss\w*['\"]?\s*(?:is|became|=|:)\s*NaN|NaN (?:loss|or Inf found in))"),
    _rule(Kind.BAD_LOSS, "inf", r"[Ll]oss['\"]?\s*(?:is|=|:)\s*-?inf\b"),
    _rule(Kind.BAD_GRADIENTS, "grad_norm", r"grad_norm['\"]?\s*[:=]\s*(?:tensor\()?['\"]?-?(?:nan|inf|NaN)"),
    _rule(Kind.BAD_GRADIENTS, "returned nan values in its", r"Function '\w+' returned nan values"),
    _rule(Kind.BAD_GRADIENTS, "is non-finite, so it cannot be clipped"),
    _rule(Kind.SKIPPED_STEPS, "Gradient overflow.", r"Gradient overflow\.\s+Skipping step"),
    _rule(Kind.SKIPPED_STEPS, "OVERFLOW!", r"OVERFLOW! .*[Ss]kipping step"),
    # Not memory.
    _rule(Kind.NO_KERNEL_IMAGE, "no kernel image is available"),
    _rule(Kind.NO_KERNEL_IMAGE, "is not compatible with the current PyTorch installation"),
    _rule(Kind.DRIVER_OLD, "driver on your system is too old"),
    _rule(Kind.DRIVER_OLD, "CUDA driver version is insufficient"),
    _rule(Kind.DRIVER_OLD, "Driver/library version mismatch"),
    _rule(Kind.NO_CUDA_BUILD, "Torch not compiled with CUDA enabled"),
    _rule(Kind.NO_GPU, "No CUDA GPUs are available"),
    _rule(Kind.NO_GPU, "Found no NVIDIA driver"),
    _rule(Kind.NO_GPU, "invalid device ordinal"),
    _rule(Kind.NO_GPU, "no CUDA-capable device is detected"),
    _rule(Kind.DEVICE_BUSY, "CUDA-capable device", r"CUDA-capable device(?:\(s\))?s? (?:is/)?are busy or unavailable"),
    _rule(Kind.GPU_LOST, "uncorrectable ECC error"),
    _rule(Kind.GPU_LOST, "has fallen off the bus"),
    _rule(Kind.GPU_LOST, "GPU is lost"),
    _rule(Kind.GPU_LOST, "UR_RESULT_ERROR_DEVICE_LOST"),
    _rule(Kind.LAUNCH_FAILED, "CUDA error: unknown error"),
    _rule(Kind.NO_GPU, "CUDA unknown error - this may be due to"),
    _rule(Kind.LAUNCH_FAILED, "unspecified launch failure"),
    _rule(Kind.LAUNCH_FAILED, "CUDA error: invalid configuration argument"),
    _rule(Kind.LAUNCH_FAILED, "CUDA error: invalid argument"),
    _rule(Kind.LAUNCH_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"),
    _rule(Kind.LAUNCH_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"),
    _rule(Kind.SHAPE, "shapes cannot be multiplied"),
    _rule(Kind.SHAPE, "must match the size of tensor"),
    _rule(Kind.SHAPE, "Sizes of tensors must match except in dimension"),
    _rule(Kind.SHAPE, "is invalid for input of size"),
    _rule(Kind.SHAPE, "stack expects each tensor to be equal size"),
    _rule(Kind.SHAPE, "expected input", r"expected input\[.*\] to have \d+ channels"),
    _rule(Kind.SHAPE, "Expected input batch_size"),
    _rule(Kind.SHAPE, "could not be broadcast together with shapes"),
    _rule(Kind.LAYOUT, "view size is not compatible with input tensor"),
    _rule(Kind.LAYOUT, "to use channels_last", r"required rank \d tensor to use channels_last"),
    _rule(Kind.LAYOUT, "unsupported memory format option"),
    _rule(Kind.LAYOUT, "refers to a single memory location"),
    _rule(Kind.INDEX, "out of bounds for dimension", r"index -?\d+ is out of bounds for dimension"),
    _rule(Kind.INDEX, "index out of range in self"),
    _rule(Kind.PLACE_OR_TYPE, "only dense CPU tensors can be pinned"),
    _rule(Kind.PLACE_OR_TYPE, "to have the same dtype"),
    _rule(Kind.PLACE_OR_TYPE, "Expected all tensors to be on the same device"),
    _rule(
        Kind.PLACE_OR_TYPE,
        "should be the same",
        r"Input type \(.*\) and (?:weight|bias) type \(.*\) should be the same",
    ),
    _rule(Kind.PLACE_OR_TYPE, "expected scalar type"),
    _rule(Kind.PLACE_OR_TYPE, "must have the same dtype"),
    _rule(Kind.BATCH_OF_ONE, "Expected more than 1 value per channel when training"),
    _rule(Kind.AUTOGRAD, "Trying to backward through the graph a second time"),
    _rule(Kind.AUTOGRAD, "has been modified by an inplace operation"),
    _rule(Kind.AUTOGRAD, "does not require grad and does not have a grad_fn"),
    _rule(Kind.UNUSED_PARAMETERS, "Expected to have finished reduction in the prior iteration"),
    _rule(Kind.STATE_DICT, "Error(s) in loading state_dict"),
    _rule(Kind.BAD_CHECKPOINT, "PytorchStreamReader failed"),
    _rule(Kind.BAD_CHECKPOINT, "Weights only load failed"),
    _rule(Kind.BAD_CHECKPOINT, "UnpicklingError: "),
    _rule(Kind.BAD_CHECKPOINT, "Error while deserializing header"),
    _rule(Kind.BAD_IMAGE, "image file is truncated"),
    _rule(Kind.BAD_IMAGE, "cannot identify image file"),
    _rule(Kind.BAD_IMAGE, "DecompressionBombError"),
    _rule(Kind.MISSING_MODULE, "ModuleNotFoundError: No module named"),
    _rule(Kind.BROKEN_LIBRARY, "cannot open shared object file"),
    _rule(Kind.BROKEN_LIBRARY, "undefined symbol: "),
    _rule(Kind.BROKEN_LIBRARY, "operator torchvision::nms does not exist"),
    _rule(Kind.BROKEN_LIBRARY, "DLL load failed while importing"),
    _rule(Kind.BROKEN_LIBRARY, "[WinError 126]"),
    _rule(Kind.DISK_FULL, "No space left on device"),
    _rule(Kind.DISK_FULL, "Disk quota exceeded"),
    _rule(Kind.SPAWN_GUARD, "current process has finished its bootstrapping phase"),
    _rule(Kind.PORT_IN_USE, "ddress already in use"),
    _rule(Kind.THREAD_LIMIT, "can't start new thread"),
    _rule(Kind.THREAD_LIMIT, "Thread creation failed: Resource temporarily unavailable"),
    _rule(Kind.THREAD_LIMIT, "pthread_create failed"),
    _rule(Kind.NETWORK, "Max retries exceeded with url"),
    _rule(Kind.NETWORK, "ouldn't connect to ", r"ouldn't connect to '?https?://"),
    _rule(Kind.NETWORK, "urlopen error", r"<urlopen error (?:\[Errno|timed out|\[SSL)"),
    _rule(Kind.NETWORK, "ailure in name resolution"),
    _rule(Kind.NETWORK, "Client Error", r"\b(?:401|403|404|429) Client Error\b.* for url"),
    _rule(Kind.NETWORK, "Server Error", r"\b50\d Server Error\b.* for url"),
    _rule(Kind.NETWORK, "LocalEntryNotFoundError"),
    _rule(Kind.COMPILER, "nvcc fatal"),
    _rule(Kind.COMPILER, "ninja: build stopped"),
    _rule(Kind.COMPILER, "Error building extension"),
    _rule(Kind.COMPILER, "failed with exit", r"error: command '\S+' failed with exit (?:code|status)"),
    _rule(Kind.COMPILER, "CUDA_HOME environment variable is not set"),
    _rule(Kind.MISSING_FILE, "FileNotFoundError: "),
    _rule(Kind.PERMISSION, "PermissionError: "),
    _rule(Kind.CRASH, "egmentation fault"),
    _rule(Kind.CRASH, "SIGSEGV"),
    _rule(Kind.CRASH, "double free or corruption"),
    _rule(Kind.CRASH, "corrupted size vs. prev_size"),
    _rule(Kind.CRASH, "malloc(): ", r"malloc\(\): (?:invalid|corrupted|unaligned)"),
    _rule(Kind.CRASH, "0xC0000005"),
    _rule(Kind.CRASH, "llegal instruction", r"^.{0,80}Illegal instruction(?: \(core dumped\)|\s|$)"),
    _rule(Kind.CRASH, "SIGILL"),
    _rule(Kind.ABORTED, "Aborted", r"^(?:Fatal Python error: |.{0,60}line \d+: +\d+ )?Aborted(?: \(core|\s|$)"),
    _rule(Kind.ABORTED, "SIGABRT"),
    _rule(Kind.TIME_LIMIT, "DUE TO TIME LIMIT"),
    _rule(Kind.STOPPED, "DUE TO PREEMPTION"),
    _rule(Kind.STOPPED, "KeyboardInterrupt", r"^(?:\[\w+\]:\s*)?KeyboardInterrupt\b"),
    _rule(Kind.STOPPED, "SignalException", r"got signal: (?:15|2|1)\b"),
    _rule(Kind.STOPPED, "CANCELLED AT", r"slurmstepd: error: \*\*\* .* CANCELLED AT (?!.*DUE TO)"),
)

# Errors of Python's own that say nothing of memory whatever their text is.
PLAIN_ERRORS = (
    "ArithmeticError", "AssertionError", "AttributeError", "EOFError", "ImportError", "IndentationError", "IndexError",
    "JSONDecodeError", "KeyError", "NameError", "NotADirectoryError", "NotImplementedError", "RecursionError",
    "StopIteration", "SyntaxError", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "ValidationError",
    "ValueError", "ZeroDivisionError",
)  # fmt: skip
