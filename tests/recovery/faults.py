"""Memory that runs short on purpose: at the k-th operation, or beyond so many live bytes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

CUDA = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 7.79 GiB of which 9 MiB is free."
CPU = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8."
)
MAKERS: tuple[Callable[[], Exception], ...] = (
    lambda: torch.OutOfMemoryError(CUDA),
    lambda: RuntimeError(CPU),
    lambda: RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    MemoryError,
    lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
)


class FaultAt(TorchDispatchMode):
    """Raises at the k-th operations, counted from 1; an operation on a list is left half done."""

    def __init__(self, at: Iterable[int] = (), make: Callable[[], Exception] = MAKERS[0]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.at, self.make = frozenset(at), make
        self.count = self.raised = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.count += 1
        if self.count in self.at:
            self.raised += 1
            if func.__name__.startswith("_foreach") and func.__name__.partition(".")[0].endswith("_"):
                halves = [arg[: len(arg) // 2] if isinstance(arg, (list, tuple)) else arg for arg in args]
                if halves[0]:
                    func(*halves, **(kwargs or {}))
            raise self.make()
        return func(*args, **(kwargs or {}))


class FaultIn(TorchDispatchMode):
    """Raises at every operation of a name, such as "addmm"."""

    def __init__(self, name: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.raised = name, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self.name in func.__name__:
            self.raised += 1
            raise torch.OutOfMemoryError(CUDA)
        return func(*args, **(kwargs or {}))


class ByteCap(TorchDispatchMode):
    """Counts the bytes of storages that operations made, and raises when more than the cap would be alive."""

    def __init__(self, cap: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cap, self.live, self.peak, self.refused = cap, 0, 0, 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {_key(leaf) for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, Tensor)}
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, Tensor) and _key(leaf) not in given and _key(leaf) not in self._known:
                self._born(leaf)
        return result

    def _born(self, tensor: Tensor) -> None:
        storage, size = tensor.untyped_storage(), tensor.untyped_storage().nbytes()
        if self.live + size > self.cap:
            self.refused += 1
            raise torch.OutOfMemoryError(CUDA)
        key = _key(tensor)
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._died, key, size)

    def _died(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def _key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
