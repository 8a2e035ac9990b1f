"""Rules that recognize failures in a text: words that always occur, and a pattern around them.

The words are searched first, because that is fast in long logs. The pattern then decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._kinds import FailureKind


@dataclass(frozen=True)
class Rule:
    """One form of a failure: `words` that occur in the text, and a `pattern` that must match around them."""

    kind: FailureKind
    words: str
    pattern: re.Pattern[str] | None = None

    def matches(self, text: str) -> bool:
        """Return True if the words occur in a text and the pattern matches."""
        return self.words in text and (self.pattern is None or self.pattern.search(text) is not None)


# The start of an exception line: a prefix of the logger or rank, then a dotted name.
_RAISED = r"(?:^|[\s|\]:>])[\w.]*(?:Error|Exception|Exit)\w*: "

# The exit status as shells, runners, launchers and subprocess print it.
_STATUS = r"(?i:exit(?:ed)?[ _-]?(?:with )?(?:code|status)|return ?code|non-zero exit status)\s{0,2}[:=]?\s{0,8}"


def _rule(kind: FailureKind, words: str, pattern: str | None = None) -> Rule:
    return Rule(kind, words, re.compile(pattern, re.MULTILINE) if pattern else None)


# If two rules match a line, the first one counts.
RULES: tuple[Rule, ...] = (
    # Messages that mention memory but mean something else.
    _rule(FailureKind.BROKEN_LIBRARY, "cannot allocate memory in static TLS block"),
    _rule(FailureKind.ILLEGAL_ACCESS, "illegal memory access"),
    _rule(FailureKind.ILLEGAL_ACCESS, "misaligned address"),
    _rule(FailureKind.KERNEL_RESOURCES, "out of resource: shared memory"),
    _rule(FailureKind.KERNEL_RESOURCES, "too many resources requested for launch"),
    _rule(FailureKind.DEVICE_ASSERT, "device-side assert triggered"),
    _rule(FailureKind.DEVICE_ASSERT, "Assertion `", r"^.*\.cu(?:h)?:\d+.*(?:block|thread): \[.*Assertion `"),
    # Pinned memory: messages of the driver, but raised in the pin-memory thread.
    _rule(
        FailureKind.PINNED,
        "in pin memory thread",
        r"in pin memory thread for device[\s\S]{0,4000}?(?:out of memory|OS call failed)",
    ),
    _rule(FailureKind.PINNED, "Pin memory thread exited unexpectedly"),
    _rule(FailureKind.PINNED, "cudaHostAlloc", r"cudaHost(?:Alloc|Register).{0,80}(?:fail|out of memory|error)"),
    _rule(FailureKind.PINNED, "cudaHostRegister", r"cudaHost(?:Alloc|Register).{0,80}(?:fail|out of memory|error)"),
    # Device memory.
    _rule(FailureKind.CUDA_OOM, "CUDA out of memory", r"CUDA out of memory\.?\s+Tried\s+to\s+allocate"),
    _rule(
        FailureKind.CUDA_OOM,
        "CUDA out of memory",
        r"(?:^|" + _RAISED + r")CUDA out of memory\b(?!,? (?:error|reduce|try|issue))",
    ),
    _rule(FailureKind.CUDA_OOM, "CUDA out of memory with batch"),
    _rule(FailureKind.CUDA_OOM, "CUDA out of memory", r"WARNING\W{1,6}CUDA out of memory"),
    _rule(FailureKind.CUDA_OOM, "c10::OutOfMemoryError"),
    _rule(FailureKind.CUDA_OOM, "Allocation on device", r"OutOfMemoryError: Allocation on device"),
    _rule(FailureKind.HIP_OOM, "HIP out of memory", r"HIP out of memory\.?\s+Tried\s+to\s+allocate"),
    _rule(FailureKind.HIP_OOM, "HIP error: out of memory"),
    _rule(FailureKind.HIP_OOM, "hipErrorOutOfMemory"),
    _rule(FailureKind.MPS_OOM, "MPS backend out of memory"),
    _rule(FailureKind.MPS_OOM, "kIOGPUCommandBufferCallbackErrorOutOfMemory"),
    _rule(FailureKind.MPS_OOM, "Invalid buffer size: "),
    _rule(FailureKind.MPS_OOM, "newBufferWithLength", r"newBufferWithLength[\s\S]{0,300}?length \d+ must not exceed"),
    _rule(FailureKind.XPU_OOM, "XPU out of memory", r"XPU out of memory\.?\s+Tried\s+to\s+allocate"),
    _rule(FailureKind.XPU_OOM, "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
    _rule(FailureKind.XPU_OOM, "UR_RESULT_ERROR_OUT_OF_RESOURCES"),
    _rule(FailureKind.XPU_OOM, "PI_ERROR_OUT_OF_RESOURCES"),
    _rule(FailureKind.DRIVER_OOM, "CUDA error: out of memory"),
    _rule(FailureKind.DRIVER_OOM, "CUDA Error: out of memory"),
    _rule(FailureKind.DRIVER_OOM, "CUDA driver error: out of memory"),
    _rule(FailureKind.DRIVER_OOM, "cudaErrorMemoryAllocation"),
    _rule(FailureKind.DRIVER_OOM, "CUDA_ERROR_OUT_OF_MEMORY"),
    _rule(FailureKind.DRIVER_OOM, "Cuda failure", r"Cuda failure (?:2 )?'out of memory'"),
    _rule(FailureKind.DRIVER_OOM, "cuda runtime error (2)"),
    _rule(FailureKind.LIBRARY_OOM, "CUBLAS_STATUS_ALLOC_FAILED"),
    _rule(FailureKind.LIBRARY_OOM, "CUDNN_STATUS_ALLOC_FAILED"),
    _rule(FailureKind.LIBRARY_OOM, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    _rule(FailureKind.LIBRARY_OOM, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    _rule(FailureKind.LIBRARY_OOM, "CUSOLVER_STATUS_ALLOC_FAILED"),
    _rule(FailureKind.LIBRARY_OOM, "CUSPARSE_STATUS_ALLOC_FAILED"),
    _rule(FailureKind.LIBRARY_OOM, "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"),
    _rule(FailureKind.LIBRARY_OOM, "insufficient resources when calling"),
    _rule(FailureKind.LIBRARY_OOM, "CUFFT_ALLOC_FAILED"),
    _rule(FailureKind.LIBRARY_OOM, "HIPBLAS_STATUS_ALLOC_FAILED"),
    _rule(FailureKind.LIBRARY_OOM, "rocblas_status_memory_error"),
    _rule(FailureKind.LIBRARY_OOM, "miopenStatusAllocFailed"),
    _rule(FailureKind.LIBRARY_ERROR, "CUBLAS_STATUS_NOT_INITIALIZED"),
    _rule(FailureKind.LIBRARY_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR"),
    _rule(FailureKind.LIBRARY_ERROR, "CUDNN_STATUS_NOT_INITIALIZED"),
    _rule(FailureKind.LIBRARY_ERROR, "CUDNN_STATUS_NOT_SUPPORTED"),
    _rule(FailureKind.LIBRARY_ERROR, "CUDNN_STATUS_INTERNAL_ERROR"),
    _rule(FailureKind.LIBRARY_ERROR, "CUSOLVER_STATUS_INTERNAL_ERROR"),
    _rule(FailureKind.LIBRARY_ERROR, "HIPBLAS_STATUS_NOT_INITIALIZED"),
    _rule(FailureKind.LIBRARY_ERROR, "unable to find an engine to execute this computation"),
    _rule(FailureKind.LIBRARY_ERROR, "Unable to find a valid cuDNN algorithm"),
    _rule(FailureKind.FRAMEWORK_OOM, "OOM when allocating tensor"),
    _rule(FailureKind.FRAMEWORK_OOM, "RESOURCE_EXHAUSTED: ", r"RESOURCE_EXHAUSTED: .*[Oo]ut of memory"),
    _rule(FailureKind.FRAMEWORK_OOM, "cupy", r"cupy[\w.]*OutOfMemoryError"),
    _rule(FailureKind.FRAMEWORK_OOM, "Failed to allocate memory for requested buffer of size"),
    _rule(
        FailureKind.FRAMEWORK_OOM, "ResourceExhaustedError:", r"ResourceExhaustedError:[\s\S]{0,200}[Oo]ut of memory"
    ),
    _rule(FailureKind.FRAMEWORK_OOM, "No available memory for the cache blocks"),
    _rule(FailureKind.TOO_MANY_ELEMENTS, "INT_MAX", r"not supported for tensors with more than INT_MAX elements"),
    _rule(FailureKind.TOO_MANY_ELEMENTS, "canUse32BitIndexMath"),
    _rule(FailureKind.TOO_MANY_ELEMENTS, "must have less than 2**31 elements"),
    # Host memory.
    _rule(FailureKind.COMMIT_LIMIT, "WinError 1455"),
    _rule(FailureKind.COMMIT_LIMIT, "error code: <1455>"),
    _rule(FailureKind.COMMIT_LIMIT, "(os error 1455)"),
    _rule(FailureKind.COMMIT_LIMIT, "paging file is too small"),
    _rule(FailureKind.COMMIT_LIMIT, "0xC0000017"),
    _rule(FailureKind.COMMIT_LIMIT, "3221225495"),
    _rule(FailureKind.ADDRESS_SPACE, "failed to map segment from shared object"),
    _rule(FailureKind.SHM_FULL, "unable to write to file </torch_"),
    _rule(FailureKind.SHM_FULL, "unable to allocate shared memory"),
    _rule(FailureKind.SHM_FULL, "unable to mmap", r"unable to mmap \d+ bytes from file </torch_"),
    _rule(FailureKind.SHM_FULL, "/shm/nccl", r"(?:[Ee]rror|[Ff]ail).*(?:extend|attach|open|creat).*/dev/shm/nccl"),
    _rule(
        FailureKind.SHM_FULL, "No space left on device", r"(?:/dev/shm|</torch_|shared memory).*No space left on device"
    ),
    _rule(
        FailureKind.SHM_FULL, "No space left on device", r"No space left on device.*(?:/dev/shm|torch_\d+_|/pym-|/psm_)"
    ),
    _rule(FailureKind.OPEN_FILES, "Too many open files"),
    _rule(FailureKind.OPEN_FILES, "received 0 items of ancdata"),
    _rule(FailureKind.CPU_OOM, "DefaultCPUAllocator: ", r"DefaultCPUAllocator: (?:can't allocate|not enough) memory"),
    _rule(FailureKind.CPU_OOM, "C10 Out of Memory"),
    # oneDNN without memory; unsupported operations mention a "primitive descriptor" instead.
    _rule(FailureKind.CPU_OOM, "could not create a primitive", r"could not create a primitive(?! desc)"),
    _rule(FailureKind.BAD_ALLOC, "std::bad_alloc"),
    _rule(FailureKind.MEMORY_ERROR, "_ArrayMemoryError"),
    _rule(FailureKind.MEMORY_ERROR, "Unable to allocate ", r"Unable to allocate [\d.]+ [KMGTP]iB for an array"),
    _rule(FailureKind.MEMORY_ERROR, "(-4:Insufficient memory)"),
    _rule(FailureKind.MEMORY_ERROR, "MemoryError", r"(?:^|[\s|\]:>])MemoryError(?::|\s*$)"),
    _rule(FailureKind.ENOMEM, "[Errno 12]"),
    _rule(
        FailureKind.ENOMEM,
        "annot allocate memory",
        r"(?:fork|mmap).*annot allocate memory|[:\]] Cannot allocate memory|annot allocate memory \(os error 12\)",
    ),
    _rule(FailureKind.ENOMEM, "[Errno 11] Resource temporarily unavailable", r"fork"),
    # Loader workers.
    _rule(FailureKind.WORKER_BUS_ERROR, "killed by signal: Bus error"),
    _rule(FailureKind.WORKER_BUS_ERROR, "insufficient shared memory (shm)"),
    _rule(FailureKind.CRASH, "killed by signal: Segmentation fault"),
    _rule(FailureKind.CRASH, "killed by signal: Aborted"),
    _rule(FailureKind.WORKER_KILLED, "is killed by signal: Killed"),
    _rule(FailureKind.STOPPED, "killed by signal: Terminated"),
    _rule(FailureKind.STOPPED, "killed by signal: Interrupt"),
    _rule(
        FailureKind.WORKER_EXITED, "exited unexpectedly", r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly"
    ),
    _rule(
        FailureKind.WORKER_EXITED,
        "exited unexpectedly with exit code",
        r"DataLoader worker \(pid \d+\) exited unexpectedly",
    ),
    # Error in the training process if a worker dies while it sends a batch.
    _rule(
        FailureKind.WORKER_EXITED,
        "in rebuild_storage_f",
        r"in rebuild_storage_f[\s\S]{0,3900}?(?:Connection\w+Error|EOFError)",
    ),
    _rule(FailureKind.WORKER_KILLED, "TerminatedWorkerError"),
    _rule(FailureKind.WORKER_EXITED, "BrokenProcessPool: "),
    _rule(FailureKind.LOADER_TIMEOUT, "DataLoader timed out after"),
    # Kills by the kernel or a scheduler.
    _rule(FailureKind.SCHEDULER_KILL, "oom-kill event", r"[Dd]etected \d+ oom[-_]kill event"),
    _rule(FailureKind.SCHEDULER_KILL, "oom_kill event", r"[Dd]etected \d+ oom[-_]kill event"),
    _rule(FailureKind.SCHEDULER_KILL, "memory limit", r"slurmstepd: error: .*[Ee]xceeded (?:job|step) memory limit"),
    _rule(FailureKind.SCHEDULER_KILL, "OUT_OF_MEMORY", r"(?:State|STATE)[\s:=|]+OUT_OF_MEMORY"),
    _rule(FailureKind.SCHEDULER_KILL, "OUT_OF_MEMORY", r"\bOUT_OF_MEMORY\s+\d+:\d+"),
    _rule(FailureKind.SCHEDULER_KILL, "OUT_OF_ME+"),
    _rule(FailureKind.SCHEDULER_KILL, "Out Of Memory", r"srun: error: .*\btasks? .*Out Of Memory"),
    _rule(FailureKind.SCHEDULER_KILL, "exceeded limit", r"PBS: job killed: \w*mem \d+\w* exceeded limit"),
    _rule(FailureKind.SCHEDULER_KILL, "TERM_MEMLIMIT"),
    _rule(FailureKind.SCHEDULER_KILL, "exceeded request_memory"),
    _rule(FailureKind.SCHEDULER_KILL, "gone over", r"[Jj]ob has gone over (?:cgroup )?memory limit"),
    _rule(FailureKind.SCHEDULER_KILL, "h_vmem", r"exceed\w* .{0,40}h_vmem"),
    _rule(FailureKind.SCHEDULER_KILL, "low on resource: memory"),
    _rule(FailureKind.SCHEDULER_KILL, "OOMKilled"),
    _rule(FailureKind.SCHEDULER_KILL, "node running low on memory"),
    _rule(FailureKind.OOM_KILL, "emory: Kill", r"(?:[Oo]ut of memory|cgroup out of memory): Kill(?:ed)? process \d+"),
    _rule(FailureKind.OOM_KILL, "emory cgroup out of memory"),
    _rule(FailureKind.OOM_KILL, "oom-kill:constraint="),
    _rule(FailureKind.OOM_KILL, "oom_reaper: reaped process"),
    _rule(FailureKind.OOM_KILL, "killed by the OOM killer"),
    _rule(FailureKind.OOM_KILL, "with result 'oom-kill'"),
    _rule(FailureKind.OOM_KILL, "using all available RAM"),
    _rule(FailureKind.OOM_KILL, "tried to allocate more memory than is available"),
    _rule(FailureKind.OOM_KILL, "terminated program cc1", r"Killed signal terminated program cc1(?:plus)?\b"),
    _rule(FailureKind.OOM_KILL, "systemd-oomd", r"systemd-oomd.*[Kk]illed"),
    _rule(
        FailureKind.OOM_KILL,
        "Killed",
        r"^(?:\S*: line \d+:\s+\d+ |\[\d+\]\S?\s+(?:\d+ )?)?Killed(?:: 9)?(?:\s{2,}\S.*)?\s*$",
    ),
    _rule(FailureKind.OOM_KILL, "killed", r"^(?:zsh: killed\s|\[\d+\]\s+[+-]?\s*\d*\s*killed\s)"),
    *(
        _rule(FailureKind.OOM_KILL, words, _STATUS + r"137\b")
        for words in ("ode 137", "ode: 137", "tatus 137", "ode:    137")
    ),
    _rule(FailureKind.OOM_KILL, "Signal 9 (SIGKILL)"),
    _rule(
        FailureKind.OOM_KILL, "SIGKILL", r"(?:terminated with signal|died with <Signals\.|signal: 9,? ?\(?)\s*SIGKILL"
    ),
    *(
        _rule(FailureKind.OOM_KILL, words, _STATUS + r"-9\b")
        for words in ("ode -9", "ode: -9", "ode  : -9", "tatus -9", "ode=-9")
    ),
    # After the rules above, which name the reason: a notebook only sees that its process has ended.
    _rule(
        FailureKind.NOTEBOOK_DIED,
        "ernel",
        r"[Kk]ernel (?:for .{1,120} )?(?:appears to have died|[Cc]rashed while executing)",
    ),
    _rule(FailureKind.NOTEBOOK_DIED, "DeadKernelError"),
    _rule(FailureKind.NOTEBOOK_DIED, "Kernel died", r"^(?:\S+ )?Kernel died(?! before)(?:[.: ]|$)"),
    # Other ranks.
    _rule(FailureKind.RANK_TIMEOUT, "collective operation timeout"),
    _rule(FailureKind.RANK_TIMEOUT, "milliseconds before timing out"),
    _rule(FailureKind.RANK_TIMEOUT, "Timed out waiting", r"Timed out waiting \d+ms for (?:recv|send) operation"),
    _rule(FailureKind.RANK_TIMEOUT, "wait timeout after", r"wait timeout after \d+ms, keys: "),
    _rule(
        FailureKind.RANK_TIMEOUT,
        "timed out in ",
        r"[Ss]ocket.*timed out|Timed? ?out .*monitoredBarrier|monitoredBarrier.*timed out",
    ),
    _rule(FailureKind.RANK_TIMEOUT, "monitoredBarrier", r"monitoredBarrier"),
    _rule(FailureKind.PEER_DIED, "Connection closed by peer ["),
    _rule(FailureKind.PEER_DIED, "Connection reset by peer", r"gloo|NCCL|TCPStore|[Rr]ank"),
    _rule(FailureKind.PEER_DIED, "gloo/transport/"),
    _rule(FailureKind.PEER_DIED, "ncclRemoteError"),
    _rule(FailureKind.PEER_DIED, "NCCL communicator was aborted"),
    _rule(FailureKind.PEER_DIED, "ChildFailedError"),
    _rule(FailureKind.PEER_DIED, "Sending process", r"Sending process \d+ closing signal SIG"),
    _rule(FailureKind.PEER_DIED, "recvBytes", r"TCPStore.*recvBytes|recvBytes failed"),
    # Numerical errors.
    _rule(FailureKind.NON_FINITE_LOSS, "nan", r"[Ll]oss\w*['\"]?\s*(?:is|=|:|\s)\s*(?:tensor\()?nan\b"),
    _rule(
        FailureKind.NON_FINITE_LOSS,
        "NaN",
        r"(?:[Ll]oss\w*['\"]?\s*(?:is|became|=|:)\s*NaN|NaN (?:loss|or Inf found in))",
    ),
    _rule(FailureKind.NON_FINITE_LOSS, "inf", r"[Ll]oss['\"]?\s*(?:is|=|:)\s*-?inf\b"),
    _rule(
        FailureKind.NON_FINITE_GRADIENTS, "grad_norm", r"grad_norm['\"]?\s*[:=]\s*(?:tensor\()?['\"]?-?(?:nan|inf|NaN)"
    ),
    _rule(FailureKind.NON_FINITE_GRADIENTS, "returned nan values in its", r"Function '\w+' returned nan values"),
    _rule(FailureKind.NON_FINITE_GRADIENTS, "is non-finite, so it cannot be clipped"),
    _rule(FailureKind.SKIPPED_STEPS, "Gradient overflow.", r"Gradient overflow\.\s+Skipping step"),
    _rule(FailureKind.SKIPPED_STEPS, "OVERFLOW!", r"OVERFLOW! .*[Ss]kipping step"),
    # Not memory.
    _rule(FailureKind.NO_KERNEL_IMAGE, "no kernel image is available"),
    _rule(FailureKind.NO_KERNEL_IMAGE, "is not compatible with the current PyTorch installation"),
    _rule(FailureKind.DRIVER_OLD, "driver on your system is too old"),
    _rule(FailureKind.DRIVER_OLD, "CUDA driver version is insufficient"),
    _rule(FailureKind.DRIVER_OLD, "Driver/library version mismatch"),
    _rule(FailureKind.NO_CUDA_BUILD, "Torch not compiled with CUDA enabled"),
    _rule(FailureKind.NO_GPU, "No CUDA GPUs are available"),
    _rule(FailureKind.NO_GPU, "Found no NVIDIA driver"),
    _rule(FailureKind.NO_GPU, "invalid device ordinal"),
    _rule(FailureKind.NO_GPU, "no CUDA-capable device is detected"),
    _rule(
        FailureKind.DEVICE_BUSY,
        "CUDA-capable device",
        r"CUDA-capable device(?:\(s\))?s? (?:is/)?are busy or unavailable",
    ),
    _rule(FailureKind.GPU_LOST, "uncorrectable ECC error"),
    _rule(FailureKind.GPU_LOST, "has fallen off the bus"),
    _rule(FailureKind.GPU_LOST, "GPU is lost"),
    _rule(FailureKind.GPU_LOST, "UR_RESULT_ERROR_DEVICE_LOST"),
    _rule(FailureKind.LAUNCH_FAILED, "CUDA error: unknown error"),
    _rule(FailureKind.NO_GPU, "CUDA unknown error - this may be due to"),
    _rule(FailureKind.LAUNCH_FAILED, "unspecified launch failure"),
    _rule(FailureKind.LAUNCH_FAILED, "CUDA error: invalid configuration argument"),
    _rule(FailureKind.LAUNCH_FAILED, "CUDA error: invalid argument"),
    _rule(FailureKind.LAUNCH_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED"),
    _rule(FailureKind.LAUNCH_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"),
    _rule(FailureKind.SHAPE, "shapes cannot be multiplied"),
    _rule(FailureKind.SHAPE, "must match the size of tensor"),
    _rule(FailureKind.SHAPE, "Sizes of tensors must match except in dimension"),
    _rule(FailureKind.SHAPE, "is invalid for input of size"),
    _rule(FailureKind.SHAPE, "stack expects each tensor to be equal size"),
    _rule(FailureKind.SHAPE, "expected input", r"expected input\[.*\] to have \d+ channels"),
    _rule(FailureKind.SHAPE, "Expected input batch_size"),
    _rule(FailureKind.SHAPE, "could not be broadcast together with shapes"),
    _rule(FailureKind.LAYOUT, "view size is not compatible with input tensor"),
    _rule(FailureKind.LAYOUT, "to use channels_last", r"required rank \d tensor to use channels_last"),
    _rule(FailureKind.LAYOUT, "unsupported memory format option"),
    _rule(FailureKind.LAYOUT, "refers to a single memory location"),
    _rule(FailureKind.INDEX, "out of bounds for dimension", r"index -?\d+ is out of bounds for dimension"),
    _rule(FailureKind.INDEX, "index out of range in self"),
    _rule(FailureKind.DEVICE_OR_DTYPE, "only dense CPU tensors can be pinned"),
    _rule(FailureKind.DEVICE_OR_DTYPE, "to have the same dtype"),
    _rule(FailureKind.DEVICE_OR_DTYPE, "Expected all tensors to be on the same device"),
    _rule(
        FailureKind.DEVICE_OR_DTYPE,
        "should be the same",
        r"Input type \(.*\) and (?:weight|bias) type \(.*\) should be the same",
    ),
    _rule(FailureKind.DEVICE_OR_DTYPE, "expected scalar type"),
    _rule(FailureKind.DEVICE_OR_DTYPE, "must have the same dtype"),
    _rule(FailureKind.BATCH_OF_ONE, "Expected more than 1 value per channel when training"),
    _rule(FailureKind.AUTOGRAD, "Trying to backward through the graph a second time"),
    _rule(FailureKind.AUTOGRAD, "has been modified by an inplace operation"),
    _rule(FailureKind.AUTOGRAD, "does not require grad and does not have a grad_fn"),
    _rule(FailureKind.UNUSED_PARAMETERS, "Expected to have finished reduction in the prior iteration"),
    _rule(FailureKind.STATE_DICT, "Error(s) in loading state_dict"),
    _rule(FailureKind.BAD_CHECKPOINT, "PytorchStreamReader failed"),
    _rule(FailureKind.BAD_CHECKPOINT, "Weights only load failed"),
    _rule(FailureKind.BAD_CHECKPOINT, "UnpicklingError: "),
    _rule(FailureKind.BAD_CHECKPOINT, "Error while deserializing header"),
    _rule(FailureKind.BAD_IMAGE, "image file is truncated"),
    _rule(FailureKind.BAD_IMAGE, "cannot identify image file"),
    _rule(FailureKind.BAD_IMAGE, "DecompressionBombError"),
    _rule(FailureKind.MISSING_MODULE, "ModuleNotFoundError: No module named"),
    _rule(FailureKind.BROKEN_LIBRARY, "cannot open shared object file"),
    _rule(FailureKind.BROKEN_LIBRARY, "undefined symbol: "),
    _rule(FailureKind.BROKEN_LIBRARY, "operator torchvision::nms does not exist"),
    _rule(FailureKind.BROKEN_LIBRARY, "DLL load failed while importing"),
    _rule(FailureKind.BROKEN_LIBRARY, "[WinError 126]"),
    _rule(FailureKind.DISK_FULL, "No space left on device"),
    _rule(FailureKind.DISK_FULL, "Disk quota exceeded"),
    _rule(FailureKind.MISSING_MAIN_GUARD, "current process has finished its bootstrapping phase"),
    _rule(FailureKind.PORT_IN_USE, "ddress already in use"),
    _rule(FailureKind.THREAD_LIMIT, "can't start new thread"),
    _rule(FailureKind.THREAD_LIMIT, "Thread creation failed: Resource temporarily unavailable"),
    _rule(FailureKind.THREAD_LIMIT, "pthread_create failed"),
    _rule(FailureKind.NETWORK, "Max retries exceeded with url"),
    _rule(FailureKind.NETWORK, "ouldn't connect to ", r"ouldn't connect to '?https?://"),
    _rule(FailureKind.NETWORK, "urlopen error", r"<urlopen error (?:\[Errno|timed out|\[SSL)"),
    _rule(FailureKind.NETWORK, "ailure in name resolution"),
    _rule(FailureKind.NETWORK, "Client Error", r"\b(?:401|403|404|429) Client Error\b.* for url"),
    _rule(FailureKind.NETWORK, "Server Error", r"\b50\d Server Error\b.* for url"),
    _rule(FailureKind.NETWORK, "LocalEntryNotFoundError"),
    _rule(FailureKind.COMPILER, "nvcc fatal"),
    _rule(FailureKind.COMPILER, "ninja: build stopped"),
    _rule(FailureKind.COMPILER, "Error building extension"),
    _rule(FailureKind.COMPILER, "failed with exit", r"error: command '\S+' failed with exit (?:code|status)"),
    _rule(FailureKind.COMPILER, "CUDA_HOME environment variable is not set"),
    _rule(FailureKind.MISSING_FILE, "FileNotFoundError: "),
    _rule(FailureKind.PERMISSION, "PermissionError: "),
    _rule(FailureKind.CRASH, "egmentation fault"),
    _rule(FailureKind.CRASH, "SIGSEGV"),
    _rule(FailureKind.CRASH, "double free or corruption"),
    _rule(FailureKind.CRASH, "corrupted size vs. prev_size"),
    _rule(FailureKind.CRASH, "malloc(): ", r"malloc\(\): (?:invalid|corrupted|unaligned)"),
    _rule(FailureKind.CRASH, "0xC0000005"),
    _rule(FailureKind.CRASH, "llegal instruction", r"^.{0,80}Illegal instruction(?: \(core dumped\)|\s|$)"),
    _rule(FailureKind.CRASH, "SIGILL"),
    _rule(FailureKind.ABORTED, "Aborted", r"^(?:Fatal Python error: |.{0,60}line \d+: +\d+ )?Aborted(?: \(core|\s|$)"),
    _rule(FailureKind.ABORTED, "SIGABRT"),
    _rule(FailureKind.TIME_LIMIT, "DUE TO TIME LIMIT"),
    _rule(FailureKind.STOPPED, "DUE TO PREEMPTION"),
    _rule(FailureKind.STOPPED, "KeyboardInterrupt", r"^(?:\[\w+\]:\s*)?KeyboardInterrupt\b"),
    _rule(FailureKind.STOPPED, "SignalException", r"got signal: (?:15|2|1)\b"),
    _rule(FailureKind.STOPPED, "CANCELLED AT", r"slurmstepd: error: \*\*\* .* CANCELLED AT (?!.*DUE TO)"),
)

# Built-in Python errors that are never about memory.
PLAIN_ERRORS = (
    "ArithmeticError", "AssertionError", "AttributeError", "EOFError", "ImportError", "IndentationError", "IndexError",
    "JSONDecodeError", "KeyError", "NameError", "NotADirectoryError", "NotImplementedError", "RecursionError",
    "StopIteration", "SyntaxError", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "ValidationError",
    "ValueError", "ZeroDivisionError",
)  # fmt: skip
