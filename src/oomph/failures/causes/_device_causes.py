"""Causes of failures of device memory."""

from __future__ import annotations

from .. import _common_advice as common
from .._kinds import Advice, Cause, FailureKind, Family, Resource

_LESS_GPU_MEMORY = (common.SMALLER_STEP, common.AUTOCAST, common.CHECKPOINTING)


_LINT_RULES = ("loss-keeps-graph", "outputs-keep-graph", "validation-with-grad", "retry-inside-except")


def _device(  # noqa: PLR0913  fields by name
    kind: FailureKind,
    title: str,
    why: str,
    advice: tuple[Advice, ...],
    *,
    retryable: bool = True,
    likely_title: str = "",
    myth: str = "",
) -> Cause:
    rules = _LINT_RULES if kind is FailureKind.CUDA_OOM else ()
    return Cause(
        kind, title, why, advice, Family.DEVICE, retryable, Resource.GPU, likely_title, lint_rules=rules, myth=myth
    )


DEVICE_CAUSES = (
    _device(
        FailureKind.CUDA_OOM,
        "The GPU ran out of memory",
        "torch's allocator could not get a block of memory, even after it had released its cached blocks.",
        _LESS_GPU_MEMORY,
        myth="empty_cache() in the loop saves memory",
    ),
    _device(
        FailureKind.HIP_OOM,
        "The AMD GPU ran out of memory",
        "torch's allocator requested a block from ROCm, and too little was left even after the allocator had released "
        "its cached blocks.",
        _LESS_GPU_MEMORY,
    ),
    _device(
        FailureKind.MPS_OOM,
        "The Apple GPU reached its memory limit",
        "The GPU shares RAM with all other programs, and torch stops allocating at a high-water mark.",
        (
            common.SMALLER_STEP,
            Advice(
                "Close other programs: they use the same memory. Then release what torch has cached:",
                "torch.mps.empty_cache()",
            ),
            Advice(
                "Remove the limit as a last resort: the system may then swap or freeze.",
                "$ PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 python train.py",
            ),
        ),
    ),
    _device(
        FailureKind.XPU_OOM,
        "The Intel GPU ran out of memory",
        "torch's allocator requested a block from the Level Zero driver, and too little was left.",
        (
            common.SMALLER_STEP,
            Advice(
                "Use mixed precision (bf16): activations take half the memory.",
                'with torch.autocast("xpu", dtype=torch.bfloat16):',
            ),
            Advice("Release cached blocks between phases of the program:", "torch.xpu.empty_cache()"),
        ),
    ),
    _device(
        FailureKind.DRIVER_OOM,
        "The CUDA driver ran out of memory",
        "The driver itself, not torch's allocator, found no memory: for a CUDA context, a library's buffers or NCCL's "
        "channels. The GPU was already full, mostly because of other processes, or a kernel was loaded when almost no "
        "memory was left.",
        (common.PROCESSES_ON_GPU, common.SMALLER_STEP, common.HEADROOM),
    ),
    _device(
        FailureKind.LIBRARY_OOM,
        "A CUDA library ran out of memory",
        "cuBLAS, cuDNN and similar libraries allocate their own handles and workspaces. The allocation failed, and the "
        "library reported it with its own error code. It is mostly an ordinary out-of-memory error.",
        (common.SMALLER_STEP, common.HEADROOM, common.PROCESSES_ON_GPU),
        likely_title="A CUDA library failed, most likely because memory ran out",
    ),
    Cause(
        FailureKind.LIBRARY_ERROR,
        "A CUDA library failed, probably because memory ran out",
        "On a nearly full GPU, cuBLAS can't create its handle and cuDNN finds no plan whose workspace fits. They "
        "report this as not initialized, not supported or an internal error. Less often the installation is broken, or "
        "an earlier index out of range has corrupted the CUDA context.",
        (
            Advice("Try half the batch size once: if that works, the cause is memory.", "batch_size = batch_size // 2"),
            Advice(
                "If it fails at any size, look for an earlier error, such as a label out of range:",
                "$ CUDA_LAUNCH_BLOCKING=1 python train.py",
            ),
            common.PROCESSES_ON_GPU,
        ),
        Family.DEVICE,
        retryable=True,
        resource=Resource.GPU,
        is_sure=False,
    ),
    _device(
        FailureKind.FRAMEWORK_OOM,
        "The framework ran out of device memory",
        "The allocator of the framework could not get the memory that it needed. Some frameworks, such as TensorFlow, "
        "JAX and vLLM, reserve most of the GPU when they start.",
        (Advice("Use smaller batches or inputs:", "batch_size = batch_size // 2"), common.PROCESSES_ON_GPU),
        retryable=False,
    ),
    Cause(
        FailureKind.TOO_MANY_ELEMENTS,
        "A tensor has too many elements for the operation",
        "Some CUDA operations use 32-bit indices, up to 2,147,483,647 elements. They fail on larger tensors even if "
        "memory is free.",
        (
            Advice(
                "Use smaller micro-batches: oomph.guard splits such a step too.",
                "guard = oomph.guard(model=model, optimizer=optimizer, loss=loss); guard.step(batch)",
            ),
            Advice("Or compute the operation in chunks:", "y = torch.cat([operation(part) for part in x.split(1024)])"),
        ),
        Family.DEVICE,
        retryable=True,
    ),
    _device(
        FailureKind.IMPOSSIBLE_SIZE,
        "One request is larger than any memory: a shape or dtype is wrong",
        "No setting makes a tensor or array of this size fit. Mostly a shape is wrong: dimensions that are multiplied "
        "or broadcast by mistake, a matrix of all pairs, one-hot labels, an image at full size, or float64.",
        (
            Advice("Print the shapes and dtypes before the line that the traceback names:", "print(x.shape, x.dtype)"),
            Advice(
                "If the size is right, compute it in chunks, or keep it sparse:",
                "y = torch.cat([operation(part) for part in x.split(1024)])",
            ),
        ),
    ),
)
