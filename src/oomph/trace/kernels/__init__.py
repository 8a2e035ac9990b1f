"""What CUDA and CPU kernels allocate besides their results, and what CUDA runs instead of the CPU's kernels."""

from __future__ import annotations

from ._cpu_rules import CPU_RULES
from ._cuda_kernels import CudaKernels
from ._cuda_rules import CUBLAS_OPS, CUDA_RULES
from ._recurrent import flatten_weights
from ._rules import AllocateResult, FreeTemporaries, RuleStep

__all__ = [
    "CPU_RULES",
    "CUBLAS_OPS",
    "CUDA_RULES",
    "AllocateResult",
    "CudaKernels",
    "FreeTemporaries",
    "RuleStep",
    "flatten_weights",
]
