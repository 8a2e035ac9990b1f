"""What is traced for: the few facts of it that decide which kernels run and what they allocate. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from ..units import KIB, MIB

_HOPPER = 9


@dataclass(frozen=True)
class Device:
    """A GPU and the software on it.

    Attributes:
        capability: compute capability as (major, minor).
        processors: number of streaming multiprocessors.
        threads: resident threads of one of them.
        cudnn: cuDNN's version as torch counts it (91900 is 9.19.0).
    """

    capability: tuple[int, int] = (9, 0)
    processors: int = 132
    threads: int = 2048
    cudnn: int = 91900

    @property
    def dropout_state(self) -> int:
        """Bytes of random state that cuDNN keeps for dropout between recurrent layers: 24 for each resident thread."""
        return self.processors * self.threads * 24

    @property
    def blas_light_workspace(self) -> int:
        """Bytes that cuBLASLt keeps for products with a bias."""
        return MIB

    @property
    def blas_workspace(self) -> int:
        """Bytes that cuBLAS keeps for each thread that multiplies matrices."""
        return 32 * MIB if self.capability[0] in {_HOPPER, 10, 12} else (4096 * 2 + 16 * 8) * KIB


@dataclass(frozen=True)
class Host:
    """The processor itself, training without a GPU."""
