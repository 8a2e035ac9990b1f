"""Devices to trace for: the properties that decide which kernels run and what they allocate. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from ..units import KIB, MIB

_AMPERE_AND_ADA, _HOPPER = 8, 9


@dataclass(frozen=True)
class CudaDevice:
    """A GPU and its libraries.

    Attributes:
        capability: compute capability as (major, minor).
        processors: number of streaming multiprocessors.
        threads: resident threads per multiprocessor.
        cudnn: cuDNN's version number as torch reports it (91900 is 9.19.0).
    """

    capability: tuple[int, int] = (9, 0)
    processors: int = 132
    threads: int = 2048
    cudnn: int = 91900

    @property
    def is_ampere_or_ada(self) -> bool:
        """True for compute capability 8.x, where rules come from public runs instead of measurements."""
        return self.capability[0] == _AMPERE_AND_ADA

    @property
    def dropout_state(self) -> int:
        """Bytes of cuDNN's random state for dropout between recurrent layers: 24 per resident thread."""
        return self.processors * self.threads * 24

    @property
    def cublaslt_workspace(self) -> int:
        """Bytes that cuBLASLt keeps for matrix products with a bias."""
        return MIB

    @property
    def cublas_workspace(self) -> int:
        """Bytes that cuBLAS keeps for each thread that multiplies matrices."""
        return 32 * MIB if self.capability[0] in {_HOPPER, 10, 12} else (4096 * 2 + 16 * 8) * KIB


@dataclass(frozen=True)
class CpuDevice:
    """The CPU, for training without a GPU."""


@dataclass(frozen=True)
class EmulatedDevice:
    """A device as a program sees it that runs as if it were there.

    Attributes:
        device: what is traced.
        name: what `torch.cuda.get_device_name()` returns.
        memory: its bytes.
    """

    device: CudaDevice | CpuDevice
    name: str
    memory: int
