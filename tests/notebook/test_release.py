from __future__ import annotations

import sys
from typing import Any

import pytest

from oomph.errors import RetriesExhausted
from oomph.failures import FailureKind
from oomph.notebook._release import find_out_of_memory, free_error

from .shells import is_freed

CPU_OOM = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"


def raised_from(cause: BaseException) -> BaseException:
    error = RetriesExhausted("the step doesn't fit", "use less")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), FailureKind.CUDA_OOM),
        (RuntimeError(CPU_OOM), FailureKind.CPU_OOM),
        (MemoryError(), FailureKind.MEMORY_ERROR),
        (OSError(12, "Cannot allocate memory"), FailureKind.ENOMEM),
        (raised_from(RuntimeError(CPU_OOM)), FailureKind.CPU_OOM),
    ],
)
def test_out_of_memory_errors(error: BaseException, kind: FailureKind) -> None:
    finding = find_out_of_memory(error)
    assert finding is not None
    assert finding.kind is kind


@pytest.mark.parametrize(
    "error",
    [
        None,
        ValueError("CUDA out of memory"),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
        RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed."),
        OSError(24, "Too many open files"),
        KeyboardInterrupt(),
    ],
)
def test_errors_to_debug(error: BaseException | None) -> None:
    assert find_out_of_memory(error) is None


def test_another_last_error_stays_for_the_debugger(plain_shell: Any) -> None:
    plain_shell.run_cell("fail(ValueError())")
    free_error(plain_shell, MemoryError())
    assert isinstance(sys.last_value, ValueError)
    assert not is_freed(plain_shell)
