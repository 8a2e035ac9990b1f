"""The memory that variables of a notebook hold: tensors and arrays in them, found without running the user's code."""

from __future__ import annotations

import collections
import itertools
import sys
import time
import types
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..units import format_size
from ._memory_use import THRESHOLD

_MAX_OBJECTS = 20_000  # looked at in one variable
_MAX_SECONDS = 0.2  # for all variables
_MAX_NAMES = 3
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_NEVER_WALKED = (str, int, float, complex, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_OUTPUTS = "Out"  # results of cells, which IPython keeps
_LIBRARIES = {"IPython", "ipykernel"}  # whose objects lead to all variables


@dataclass(frozen=True)
class HeldMemory:
    """Bytes of tensors and arrays, on GPUs and in RAM."""

    gpu: int = 0
    ram: int = 0

    @property
    def total(self) -> int:
        """Bytes on all devices."""
        return self.gpu + self.ram


def measure_variables(namespace: Mapping[str, object], skip: Container[str] = ()) -> dict[str, HeldMemory]:
    """Return the memory that each variable of a notebook holds; what several hold counts for the first one.

    Looks into containers, modules, optimizers and other objects. It can't see the activations that a loss keeps for its
    backward, and it stops early if there is very much to look at.
    """
    names = [name for name in namespace if not name.startswith("_") and name not in skip and name != _OUTPUTS]
    seen = {id(namespace)}
    end = time.monotonic() + _MAX_SECONDS
    sizes = {}
    for name in itertools.takewhile(lambda _: time.monotonic() < end, [*names, _OUTPUTS]):
        blocks = list(itertools.islice(_blocks(namespace.get(name), seen), _MAX_OBJECTS))
        gpu = sum(size for on_gpu, size in blocks if on_gpu)
        held = HeldMemory(gpu, sum(size for _, size in blocks) - gpu)
        if held.total:
            sizes[name] = held
    return sizes


def grown_variables(before: Mapping[str, HeldMemory], after: Mapping[str, HeldMemory]) -> str:
    """Name the variables that hold notably more than before, largest first: `"x 2 GiB (GPU), data 1 GiB"`."""
    return largest_variables({name: _growth(before.get(name, HeldMemory()), held) for name, held in after.items()})


def _growth(before: HeldMemory, after: HeldMemory) -> HeldMemory:
    return HeldMemory(max(0, after.gpu - before.gpu), max(0, after.ram - before.ram))


def largest_variables(sizes: Mapping[str, HeldMemory]) -> str:
    """Name the variables that hold the most memory."""
    names = sorted((name for name in sizes if sizes[name].total >= THRESHOLD), key=lambda name: -sizes[name].total)
    shown = [f"{name} {format_size(sizes[name].total)}{_device(sizes[name])}" for name in names[:_MAX_NAMES]]
    return ", ".join([*shown, *([f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else [])])


def _device(held: HeldMemory) -> str:
    return " (GPU)" if held.gpu > held.ram else ""


def _blocks(root: object, seen: set[int]) -> Iterator[tuple[bool, int]]:
    """Yield for each object whether its memory is on a GPU, and its bytes: 0 for most objects."""
    queue = collections.deque([root])
    while queue:
        value = queue.popleft()
        if id(value) in seen or issubclass(type(value), _NEVER_WALKED) or value is None:
            continue
        seen.add(id(value))
        block = _tensor_block(value, seen) or _array_block(value, seen)
        if block is not None:
            yield block
        yield False, 0
        queue.extend(itertools.islice(_children(value), _MAX_OBJECTS))


def _tensor_block(value: Any, seen: set[int]) -> tuple[bool, int] | None:
    torch: Any = sys.modules.get("torch")
    if torch is None or not issubclass(type(value), getattr(torch, "Tensor", ())):
        return None
    try:
        storage = value.untyped_storage()
        device = storage.device.type
        address = None if device == "meta" else storage.data_ptr()  # fake tensors are on "meta" too
    except (RuntimeError, NotImplementedError):  # sparse and wrapped tensors have no storage
        return None
    if address is None or address in seen:
        return None
    seen.add(address)
    return device != "cpu", storage.nbytes()


def _array_block(value: Any, seen: set[int]) -> tuple[bool, int] | None:
    if issubclass(type(value), (bytes, bytearray)):
        return False, len(value)
    numpy: Any = sys.modules.get("numpy")
    array_type = getattr(numpy, "ndarray", ())
    if numpy is None or not issubclass(type(value), array_type):
        return None
    while issubclass(type(value.base), array_type):  # a view
        value = value.base
    address = value.__array_interface__["data"][0]
    if address in seen:
        return None
    seen.add(address)
    return False, int(value.nbytes)


def _children(value: Any) -> Iterable[object]:
    kind = type(value)
    if kind.__module__.partition(".")[0] in _LIBRARIES:
        return ()
    if kind in _SEQUENCES:
        return value  # type: ignore[no-any-return]
    if issubclass(kind, dict):
        return dict.values(value)
    try:
        # Not vars(): a proxy or lazy module would run code.
        return object.__getattribute__(value, "__dict__").values()  # type: ignore[no-any-return]
    except (AttributeError, TypeError):
        return ()
