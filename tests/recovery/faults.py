"""Fault injection: out-of-memory errors at chosen operations and calls, or beyond a number of live bytes."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from oomph import recovery
from oomph.recovery.splitting import SplitCheck

CUDA_OOM = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 7.79 GiB of which 9 MiB is free."
)
CPU_OOM = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8."
)
OOM_ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: torch.OutOfMemoryError(CUDA_OOM),
    lambda: RuntimeError(CPU_OOM),
    lambda: RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    MemoryError,
    lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
)


def in_split_check() -> bool:
    """Return True in the check of the first step, which calls forward and loss without gradients for comparison."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not SplitCheck.find_rule.__code__:
        frame = frame.f_back
    return frame is not None


class FaultAt(TorchDispatchMode):
    """Raise at the given operations, counted from 1; an in-place operation on a list is left half done.

    Operations of the split check are not counted.

    Args:
        operations: the numbers of the operations that fail.
        error: creates the error.
    """

    def __init__(self, operations: Iterable[int] = (), error: Callable[[], Exception] = OOM_ERRORS[0]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations, self.error = frozenset(operations), error
        self.count = self.raised = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # skipping would cost more than most operations

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if in_split_check():
            return func(*args, **(kwargs or {}))
        self.count += 1
        if self.count in self.operations:
            self.raised += 1
            if func.__name__.startswith("_foreach") and func.__name__.partition(".")[0].endswith("_"):
                halves = [arg[: len(arg) // 2] if isinstance(arg, (list, tuple)) else arg for arg in args]
                if halves[0]:
                    func(*halves, **(kwargs or {}))
            raise self.error()
        return func(*args, **(kwargs or {}))


class FaultIn(TorchDispatchMode):
    """Raise at every operation with a name, such as "addmm", or at the first ones, except in the split check.

    Args:
        name: a part of the operation's name.
        times: how many of them fail; None for all.
    """

    def __init__(self, name: str, times: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.times, self.raised = name, times, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        is_due = self.name in func.__name__ and (self.times is None or self.raised < self.times)
        if is_due and not in_split_check():
            self.raised += 1
            raise torch.OutOfMemoryError(CUDA_OOM)
        return func(*args, **(kwargs or {}))


class ByteCap(TorchDispatchMode):
    """Count the bytes of new storages, and raise when more of them than the cap would be alive."""

    def __init__(self, cap: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cap, self.live, self.peak, self.raised = cap, 0, 0, 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {_storage_id(leaf) for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)}
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, Tensor) and _storage_id(leaf) not in given | self._known:
                self._add(leaf)
        return result

    def _add(self, tensor: Tensor) -> None:
        storage, size = tensor.untyped_storage(), tensor.untyped_storage().nbytes()
        if self.live + size > self.cap:
            self.raised += 1
            raise torch.OutOfMemoryError(CUDA_OOM)
        key = _storage_id(tensor)
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def _storage_id(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


class FailingCall:
    """A function that runs out of memory once, before or after its work; calls of the split check are not counted.

    Args:
        function: the function.
        call: the number of the call that fails, counted from 1; 0 for none.
        after: fail after the work.
        error: creates the error.
        in_check: count only the calls of the split check instead.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        call: int = 1,
        *,
        after: bool = False,
        error: Callable[[], BaseException] = MemoryError,
        in_check: bool = False,
    ) -> None:
        self.function, self.call, self.after, self.error = function, call, after, error
        self.in_check = in_check
        self.count = self.raised = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if in_split_check() != self.in_check:
            return self.function(*args, **kwargs)
        self.count += 1
        if self.count != self.call:
            return self.function(*args, **kwargs)
        self.raised += 1
        if self.after:
            self.function(*args, **kwargs)
        raise self.error()


def failing_forward(call: int = 1, loss: Callable[..., Any] = nn.functional.mse_loss) -> Callable[..., Any]:
    """Return a forward that runs out of memory once, after the model was called."""

    def forward(model: nn.Module, batch: Any) -> Any:
        outputs = model(batch[0])
        fail()
        return loss(outputs, batch[1])

    fail = FailingCall(lambda: None, call)
    return forward


class InterruptAt:
    """Raise KeyboardInterrupt at a line of the guard's own code.

    Args:
        line: the number of the executed line, counted from 1.
        start: the function of the guard at which counting starts; None to start at once.
    """

    _FOLDER = str(Path(recovery.__file__).parent)

    def __init__(self, line: int, start: str | None = None) -> None:
        self.line, self.start = line, start
        self.count = 0
        self.is_counting, self.raised = start is None, False

    def run(self, work: Callable[[], object]) -> None:
        """Call the function with the interrupt; `raised` says if it has that many lines."""
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            work()
        except KeyboardInterrupt:
            if not self.raised:
                raise
        finally:
            sys.settrace(before)
            torch.set_grad_enabled(True)  # an interrupt between the lines of `with torch.no_grad()` leaves it disabled

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        del event, argument
        if not frame.f_code.co_filename.startswith(self._FOLDER):
            return None
        self.is_counting |= frame.f_code.co_name == self.start
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
        del frame, argument
        if event == "line" and self.is_counting:
            self.count += 1
            if self.count == self.line:
                sys.settrace(None)
                self.raised = True
                raise KeyboardInterrupt
        return self._on_line
