"""Rules for device memory."""

from __future__ import annotations

from .._kinds import FailureKind
from ._rule import RAISED, rule

DEVICE_RULES = (
    # RAPIDS' allocator: its C++ exception would otherwise look like one of host memory.
    rule(FailureKind.DRIVER_OOM, "std::bad_alloc", r"std::bad_alloc: (?:out_of_memory: )?CUDA error"),
    rule(FailureKind.DRIVER_OOM, "aximum pool size exceeded"),
    rule(FailureKind.DRIVER_OOM, "rror out of memory at line"),  # kernels of bitsandbytes
    rule(FailureKind.FRAMEWORK_OOM, "TOutOfMemoryError", r"N\w+::TOutOfMemoryError"),  # CatBoost
    rule(FailureKind.FRAMEWORK_OOM, "emory Object Allocation Failure"),  # OpenCL, in LightGBM
    rule(FailureKind.FRAMEWORK_OOM, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    rule(
        FailureKind.FRAMEWORK_OOM, "Memory allocation error on worker", r"Memory allocation error on worker \d+: .*cuda"
    ),
    rule(FailureKind.CUDA_OOM, "would exceed allowed memory"),
    rule(
        FailureKind.CUDA_OOM, "OutOfMemoryError", r"Exception Type:\W{1,6}torch\.(?:cuda\.)?OutOfMemoryError"
    ),  # ComfyUI
    rule(FailureKind.IMPOSSIBLE_SIZE, "Tried to allocate more than 1EB"),
    # torch asks NVML about other processes while it writes the message; on MIG that fails.
    rule(FailureKind.CUDA_OOM, "NVML_SUCCESS == r INTERNAL ASSERT FAILED"),
    rule(FailureKind.CUDA_OOM, "No executable batch size found"),
    rule(FailureKind.CUDA_OOM, "Not enough memory, use lower resolution"),  # of Stable Diffusion's web UI
    # The weights alone don't fit, so that accelerate would put some of them elsewhere.
    rule(FailureKind.CUDA_OOM, "modules are dispatched on the CPU or the disk"),
    # Memory pools of servers, whose sizes are settings.
    rule(FailureKind.FRAMEWORK_OOM, "--mem-fraction-static", r"[Nn]ot enough memory[^\n]*--mem-fraction-static"),
    rule(FailureKind.FRAMEWORK_OOM, "Not enough memory to handle", r"Not enough memory to handle \d+ prefill tokens"),
    rule(FailureKind.FRAMEWORK_OOM, "allocate buffer for kv cache"),
    rule(FailureKind.FRAMEWORK_OOM, "Exceeded max size of memory object allocation"),  # OpenVINO
    rule(
        FailureKind.FRAMEWORK_OOM,
        "Not enough memory resources",
        r"(?:[Dd][Mm][Ll]|D3D12|DXGI|DirectML)[^\n]*Not enough memory resources",
    ),
    # Caught and skipped by the program.
    rule(FailureKind.CUDA_OOM, "ran out of memory", r"(?i)\bran out of memory\b[^\n]{0,120}(?:skip|retry|exception:)"),
    rule(FailureKind.CUDA_OOM, "recover from OOM"),
    rule(
        FailureKind.CUDA_OOM,
        "OOM",
        r"\bOOM\b[^\n]{0,80}\b[Ss]kipp?(?:ing|ed)\b|\b[Ss]kipp(?:ing|ed)\b[^\n]{0,80}\bOOM\b",
    ),
    rule(
        FailureKind.CUDA_OOM,
        "out of memory",
        r"(?i)^.{0,60}warn.{0,80}out of memory[^\n]{0,80}skip|out of memory[,;:. ]{1,3}skipp(?:ing|ed)",
    ),
    rule(FailureKind.CUDA_OOM, "CUDA out of memory", r"CUDA out of memory\.?\s+Tried\s+to\s+allocate"),
    rule(
        FailureKind.CUDA_OOM,
        "CUDA out of memory",
        r"(?:^|" + RAISED + r")CUDA out of memory\b(?!,? (?:error|reduce|try|issue))",
    ),
    rule(FailureKind.CUDA_OOM, "CUDA out of memory with batch"),
    rule(FailureKind.CUDA_OOM, "CUDA out of memory", r"WARNING\W{1,6}CUDA out of memory"),
    rule(FailureKind.CUDA_OOM, "c10::OutOfMemoryError"),
    rule(FailureKind.CUDA_OOM, "Allocation on device", r"OutOfMemoryError: Allocation on device"),
    rule(FailureKind.HIP_OOM, "HIP out of memory", r"HIP out of memory\.?\s+Tried\s+to\s+allocate"),
    rule(FailureKind.HIP_OOM, "HIP error: out of memory"),
    rule(FailureKind.HIP_OOM, "hipErrorOutOfMemory"),
    rule(FailureKind.HIP_OOM, "hip runtime error (2)"),
    rule(FailureKind.HIP_OOM, "HSA_STATUS_ERROR_OUT_OF_RESOURCES"),
    rule(FailureKind.MPS_OOM, "MPS backend out of memory"),
    rule(FailureKind.MPS_OOM, "kIOGPUCommandBufferCallbackErrorOutOfMemory"),
    rule(FailureKind.MPS_OOM, "Invalid buffer size: "),
    rule(FailureKind.MPS_OOM, "greater than the maximum allowed buffer size"),
    rule(FailureKind.MPS_OOM, "newBufferWithLength", r"newBufferWithLength[\s\S]{0,300}?length \d+ must not exceed"),
    rule(FailureKind.XPU_OOM, "XPU out of memory", r"XPU out of memory\.?\s+Tried\s+to\s+allocate"),
    rule(FailureKind.XPU_OOM, "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY"),
    rule(FailureKind.XPU_OOM, "UR_RESULT_ERROR_OUT_OF_RESOURCES"),
    rule(FailureKind.XPU_OOM, "PI_ERROR_OUT_OF_RESOURCES"),
    rule(FailureKind.DRIVER_OOM, "CUDA error: out of memory"),
    rule(FailureKind.DRIVER_OOM, "CUDA Error: out of memory"),
    rule(FailureKind.DRIVER_OOM, "CUDA driver error: out of memory"),
    rule(FailureKind.DRIVER_OOM, "cudaErrorMemoryAllocation"),
    rule(FailureKind.DRIVER_OOM, "CUDA_ERROR_OUT_OF_MEMORY"),
    rule(FailureKind.DRIVER_OOM, "Cuda failure", r"Cuda failure (?:2 )?'out of memory'"),
    rule(FailureKind.DRIVER_OOM, "cuda runtime error (2)"),
    rule(FailureKind.DRIVER_OOM, "THCudaCheck FAIL", r"THCudaCheck FAIL .*out of memory"),
    rule(FailureKind.DRIVER_OOM, "cudaMalloc", r"cudaMalloc\w*(?: retry)? failed"),
    rule(FailureKind.DRIVER_OOM, "Error 2: out of memory"),
    rule(FailureKind.DRIVER_OOM, "Cuda failure", r"Cuda failure .{0,30}out of memory"),
    rule(FailureKind.DRIVER_OOM, "CUDA failure 2"),
    rule(FailureKind.FRAMEWORK_OOM, "Error Code 2: OutOfMemory"),
    rule(
        FailureKind.FRAMEWORK_OOM,
        " out of memory",
        r"\b(?:NPU|MLU|MUSA|HPU|GCU|SDAA|PrivateUse\w*) out of memory\.?\s+Tried\s+to\s+allocate",
    ),
    rule(FailureKind.FRAMEWORK_OOM, "could not be allocated", r"Requested amount of GPU memory \(\d+ bytes\)"),
    rule(FailureKind.LIBRARY_OOM, "CUBLAS_STATUS_ALLOC_FAILED"),
    rule(FailureKind.LIBRARY_OOM, "CUDNN_STATUS_ALLOC_FAILED"),
    rule(FailureKind.LIBRARY_OOM, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    rule(FailureKind.LIBRARY_OOM, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
    rule(FailureKind.LIBRARY_OOM, "CUSOLVER_STATUS_ALLOC_FAILED"),
    rule(FailureKind.LIBRARY_OOM, "CUSPARSE_STATUS_ALLOC_FAILED"),
    rule(FailureKind.LIBRARY_OOM, "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"),
    rule(FailureKind.LIBRARY_OOM, "insufficient resources when calling"),
    rule(FailureKind.LIBRARY_OOM, "CUFFT_ALLOC_FAILED"),
    rule(FailureKind.LIBRARY_OOM, "CURAND_STATUS_ALLOCATION_FAILED"),
    rule(FailureKind.LIBRARY_OOM, "HIPBLAS_STATUS_ALLOC_FAILED"),
    rule(FailureKind.LIBRARY_OOM, "rocblas_status_memory_error"),
    rule(FailureKind.LIBRARY_OOM, "miopenStatusAllocFailed"),
    rule(FailureKind.LIBRARY_ERROR, "CUBLAS_STATUS_NOT_INITIALIZED"),
    rule(FailureKind.LIBRARY_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR"),
    rule(FailureKind.LIBRARY_ERROR, "CUDNN_STATUS_NOT_INITIALIZED"),
    rule(FailureKind.LIBRARY_ERROR, "CUDNN_STATUS_NOT_SUPPORTED"),
    rule(FailureKind.LIBRARY_ERROR, "CUDNN_STATUS_INTERNAL_ERROR"),
    rule(FailureKind.LIBRARY_ERROR, "CUDNN_STATUS_MAPPING_ERROR"),
    rule(FailureKind.LIBRARY_ERROR, "CUSOLVER_STATUS_INTERNAL_ERROR"),
    rule(FailureKind.LIBRARY_ERROR, "CUSOLVER_STATUS_NOT_INITIALIZED"),
    rule(FailureKind.LIBRARY_ERROR, "CUFFT_INTERNAL_ERROR"),
    rule(FailureKind.LIBRARY_ERROR, "Failed to get convolution algorithm"),
    rule(FailureKind.LIBRARY_ERROR, "GEMM launch failed", r"(?:Blas|BLAS|x?)\s?x?GEMM launch failed"),
    rule(FailureKind.LIBRARY_ERROR, "cuDNN launch failure"),
    rule(FailureKind.LIBRARY_ERROR, "DNN library is not found"),
    rule(FailureKind.LIBRARY_ERROR, "DNN library initialization failed"),
    rule(FailureKind.LIBRARY_ERROR, "HIPBLAS_STATUS_NOT_INITIALIZED"),
    rule(FailureKind.LIBRARY_ERROR, "unable to find an engine to execute this computation"),
    rule(FailureKind.LIBRARY_ERROR, "Unable to find a valid cuDNN algorithm"),
    rule(FailureKind.FRAMEWORK_OOM, "OOM when allocating tensor"),
    rule(
        FailureKind.FRAMEWORK_OOM,
        "RESOURCE_EXHAUSTED",
        r"RESOURCE_EXHAUSTED\b[\s\S]{0,300}?(?:[Oo]ut of memory|OOM|[Aa]llocat|memory|hbm)",
    ),
    rule(FailureKind.FRAMEWORK_OOM, "(ResourceExhausted)"),
    rule(FailureKind.FRAMEWORK_OOM, "Out of memory error on GPU"),
    # Paddle raises Python's error, and says further below that it was the GPU.
    rule(FailureKind.FRAMEWORK_OOM, "MemoryError", r"MemoryError:[\s\S]{0,3500}?Out of memory error on GPU"),
    rule(FailureKind.THRASHING, "pytorch allocator cache flushes since last step"),
    rule(
        FailureKind.SPILL,
        "hared GPU memory",
        r"[Dd]edicated GPU memory\W+[\d.]+ ?/.*[Ss]hared GPU memory\W+[1-9][\d.]* ?/",
    ),
    rule(
        FailureKind.SPILL,
        "hared GPU memory",
        r"^\W*[Ss]hared GPU memory(?: usage)?\W+(?:[1-9]|\d{2,})(?:[.,]\d+)? ?/ ?[\d.,]+ ?GB",
    ),
    rule(FailureKind.DRIVER_OOM, "OutOfDeviceMemory"),  # Vulkan
    rule(FailureKind.FRAMEWORK_OOM, "Fail to alloc memory of"),
    rule(FailureKind.FRAMEWORK_OOM, "is smaller than requested bytes of"),
    rule(FailureKind.FRAMEWORK_OOM, "Dst tensor is not initialized"),
    rule(
        FailureKind.FRAMEWORK_OOM,
        "ran out of memory trying to allocate",
        r"Allocator \(\w+\) ran out of memory(?![^\n]*not a failure)",
    ),
    rule(
        FailureKind.FRAMEWORK_OOM,
        "KV cache",
        r"larger than the (?:available KV cache memory|maximum number of tokens that can be stored in .{0,9}KV cache)",
    ),
    rule(
        FailureKind.FRAMEWORK_OOM,
        "GPU memory utilization",
        r"Free memory on device.*less than desired GPU memory utilization",
    ),
    rule(FailureKind.FRAMEWORK_OOM, "cupy", r"cupy[\w.]*OutOfMemoryError"),
    rule(FailureKind.FRAMEWORK_OOM, "allocated so far: ", r"allocating [\d,]+ bytes \(allocated so far: "),  # CuPy
    rule(FailureKind.FRAMEWORK_OOM, "Failed to allocate memory for requested buffer of size"),
    rule(FailureKind.FRAMEWORK_OOM, "ResourceExhaustedError:", r"ResourceExhaustedError:[\s\S]{0,200}[Oo]ut of memory"),
    rule(
        FailureKind.FRAMEWORK_OOM,
        "ResourceExhaustedError: Graph execution error",
        r"ResourceExhaustedError: Graph execution error(?![\s\S]{0,3900}No space left)",
    ),
    rule(FailureKind.FRAMEWORK_OOM, "No available memory for the cache blocks"),
    rule(FailureKind.TOO_MANY_ELEMENTS, "INT_MAX", r"(?:more|less|fewer|greater) than INT_MAX|<=? ?INT_MAX"),
    rule(FailureKind.TOO_MANY_ELEMENTS, "input tensor is too large"),
    rule(FailureKind.TOO_MANY_ELEMENTS, "total bytes of NDArray > 2**32"),
    rule(FailureKind.TOO_MANY_ELEMENTS, "smaller than int32_t max"),
    rule(FailureKind.TOO_MANY_ELEMENTS, "canUse32BitIndexMath"),
    rule(FailureKind.TOO_MANY_ELEMENTS, "must have less than 2**31 elements"),
    rule(FailureKind.TOO_MANY_ELEMENTS, "needs to be less than 2**32 elements"),
    rule(FailureKind.TOO_MANY_ELEMENTS, "number of categories cannot exceed 2^24"),
)
