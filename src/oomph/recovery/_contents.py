"""What an object is made of: attributes, containers, tensors, arrays and random generators, however deep.

Classes are sorted once, so that a walk costs a look into a dictionary for each thing that it meets.
"""

from __future__ import annotations

import array
import collections
import enum
import io
import random
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from ..errors import UsageError

_MANY = 10_000  # things in a metric at the start; whatever has more is no metric
_NEVER = (type, types.ModuleType, types.FunctionType, types.MethodType, enum.Enum, Optimizer, DataLoader, Dataset)
_OTHERS = frozenset({"torch", "numpy", "oomph"})  # as Python's own: looked into where it says that it has a state
_MODULES_OWN = frozenset({"_modules", "_parameters", "_buffers"})

Modules = Literal["all", "weights", "nothing"]  # all: attributes of all modules too; those of metrics count something
Back = tuple[Callable[[Any, Any], object], Any, Any]  # a function that makes a thing as it was, the thing, how it was


class Contents:
    """The contents of objects, as they are now.

    Args:
        but: modules that are left out, because somebody else keeps them.
        modules: what of modules is looked at.
        trees: the modules of modules, as far as they are known; filled where only weights are looked at.

    Attributes:
        tensors: each once.
        backs: how everything else is put back.
        lost: what has a state that nobody can put back.
    """

    def __init__(
        self,
        but: Iterable[nn.Module] = (),
        modules: Modules = "all",
        trees: dict[nn.Module, list[nn.Module]] | None = None,
    ) -> None:
        self._seen = {id(one) for one in but}
        self._walked = set(self._seen)  # modules
        self._modules = modules
        self._trees = {} if trees is None else trees
        self.tensors: list[Tensor] = []
        self.backs: list[Back] = []
        self.lost: list[object] = []

    def add(self, value: object) -> None:
        """Look at an object, whatever it is."""
        if isinstance(value, nn.Module) and self._modules == "nothing":
            self._look_at_attributes(value)
        elif _kind(type(value)) is not None:
            self._look(value)
        elif not isinstance(value, _NEVER) and has_attributes(value):
            self._look_at_attributes(value)

    @property
    def is_large(self) -> bool:
        """Whether there is more than anybody wants to remember in each step."""
        return len(self._seen) > _MANY

    @classmethod
    def sort(cls, kind: type) -> _Kind | None:
        """Find out how things of a class are looked at."""
        if issubclass(kind, _NEVER):
            return None
        for base, look in cls._kinds():
            if issubclass(kind, base):
                return look
        package = kind.__module__.partition(".")[0]
        if (package in _OTHERS or package in sys.stdlib_module_names) and not hasattr(kind, "state_dict"):
            return cls._look_at_lost if _is_iterator(kind) else None
        return cls._look_at_attributes if kind.__dictoffset__ or _slots(kind) else None

    @classmethod
    def _kinds(cls) -> Iterator[tuple[type | tuple[type, ...], _Kind]]:
        yield Tensor, cls._look_at_tensor
        yield nn.Module, cls._look_at_module
        yield (list, bytearray, array.array), cls._look_at_list
        yield collections.deque, cls._look_at_deque
        yield dict, cls._look_at_dict
        yield set, cls._look_at_set
        yield tuple, cls._look_at_tuple
        yield types.SimpleNamespace, cls._look_at_attributes
        yield torch.Generator, _keep_random("get_state", "set_state")
        yield random.Random, _keep_random("getstate", "setstate")
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            yield numpy.ndarray, cls._look_at_array
            yield numpy.random.RandomState, _keep_random("get_state", "set_state")
            yield (numpy.random.Generator, numpy.random.BitGenerator), _keep_bits

    def _look(self, value: Any) -> None:
        kind = _kind(type(value))
        if kind is not None and id(value) not in self._seen:
            self._seen.add(id(value))
            kind(self, value)

    def _look_at_all(self, values: Iterable[Any]) -> None:
        for one in values:
            self._look(one)

    def _look_at_tensor(self, tensor: Tensor) -> None:
        self.tensors.append(tensor)

    def _look_at_list(self, values: Any) -> None:
        kept = list(values)
        self.backs.append((_refill_list, values, kept))
        self._look_at_all(kept)
        self._look_at_more(values)

    def _look_at_deque(self, values: Any) -> None:
        kept = list(values)
        self.backs.append((_refill_deque, values, kept))
        self._look_at_all(kept)
        self._look_at_more(values)

    def _look_at_dict(self, values: Any) -> None:
        kept = dict(values)
        self.backs.append((_refill, values, kept))
        self._look_at_all(kept.values())
        self._look_at_more(values)

    def _look_at_set(self, values: Any) -> None:
        self.backs.append((_refill, values, set(values)))
        self._look_at_more(values)

    def _look_at_more(self, container: Any) -> None:
        """A container of somebody's own class has attributes too."""
        if type(container).__dictoffset__:
            self._look_at_attributes(container)

    def _look_at_tuple(self, values: Any) -> None:
        self._look_at_all(values)

    def _look_at_array(self, values: Any) -> None:
        if values.flags.writeable:
            self.backs.append((_fill, values, values.copy()))

    def _look_at_lost(self, value: Any) -> None:
        self.lost.append(value)

    def _look_at_module(self, module: nn.Module) -> None:
        if self._modules == "nothing":
            return
        if self._modules == "all":
            for owner in module.modules():
                self._look_at_one(owner)
            return
        if module not in self._trees:  # an average is walked through once, because that takes milliseconds
            self._trees[module] = list(module.modules())
        for owner in self._trees[module]:
            self._look_at_weights(owner)
        self._look_at_attributes(module)

    def _look_at_one(self, module: nn.Module) -> None:
        if id(module) not in self._walked:
            self._walked.add(id(module))
            self._look_at_weights(module)
            self._look_at_attributes(module)

    def _look_at_weights(self, module: nn.Module) -> None:
        buffers = module._buffers  # noqa: SLF001  the place, for which there is no public name
        self.backs.append((_rebind, buffers, dict(buffers)))
        for one in (*module._parameters.values(), *buffers.values()):  # noqa: SLF001
            if one is not None:
                self.tensors.append(one)

    def _look_at_attributes(self, value: Any) -> None:
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:
            kept = dict(attributes)
            self.backs.append((_rebind, attributes, kept))
            for name, one in kept.items():
                if name not in _MODULES_OWN:
                    self._look(one)
        if _slots(type(value)):
            kept = slot_values(value)
            self.backs.append((_refill_slots, value, kept))
            self._look_at_all(kept.values())


def refuse_what_cannot_be_kept(objects: Iterable[object]) -> None:
    """Look through what a guard is asked to keep.

    Raises:
        UsageError: nothing of it, or not all of it, could be put back.
    """
    for one in objects:
        name, found = type(one).__name__, Contents()
        found.add(one)
        if found.is_large:
            raise UsageError(
                f"keep has a {name} from which more than {_MANY:,} things can be reached", "pass the metric alone"
            )
        if found.lost:
            lost = type(found.lost[0]).__name__
            inside = "" if found.lost[0] is one else f" with a {lost} in it"
            raise UsageError(
                f"keep has a {name}{inside}, and how far an iterator is can't be put back",
                "keep a number in its place, and make the iterator from that",
            )
        if not found.tensors and not found.backs:
            raise UsageError(
                f"keep has a {name}, of which nothing can be put back",
                "pass an object with attributes, a container, a tensor, an array or a random generator",
            )


def has_attributes(value: object) -> bool:
    """Whether an object has attributes of its own."""
    return hasattr(value, "__dict__") or bool(_slots(type(value)))


def slot_values(value: object) -> dict[str, Any]:
    """What is in an object's slots."""
    return {name: slot.__get__(value) for name, slot in _slots(type(value)).items() if hasattr(value, name)}


def _slots(cls: type) -> dict[str, Any]:
    """The slots of a class written in Python."""
    if cls not in _SLOTS:
        _SLOTS[cls] = _find_slots(cls)
    return _SLOTS[cls]


def _find_slots(cls: type) -> dict[str, Any]:
    return {
        name: slot
        for one in reversed(cls.__mro__)
        if "__slots__" in vars(one)
        for name, slot in vars(one).items()
        if isinstance(slot, types.MemberDescriptorType)
    }


def _refill_slots(value: Any, kept: dict[str, Any]) -> None:
    for name, slot in _slots(type(value)).items():
        if name in kept:
            slot.__set__(value, kept[name])
        elif hasattr(value, name):
            slot.__delete__(value)


def _rebind(attributes: dict[str, Any], kept: dict[str, Any]) -> None:
    for name in [name for name in attributes if name not in kept]:
        del attributes[name]
    attributes.update(kept)


def _refill(container: Any, kept: Any) -> None:
    container.clear()
    container.update(kept)


def _refill_list(container: Any, kept: list[Any]) -> None:
    del container[:]
    container.extend(kept)


def _refill_deque(container: Any, kept: list[Any]) -> None:
    container.clear()
    container.extend(kept)


def _fill(values: Any, kept: Any) -> None:
    values[...] = kept


def _keep_random(take: str, set_: str) -> Callable[[Contents, Any], None]:
    """How a random generator is kept that has methods of these names."""

    def look(found: Contents, generator: Any) -> None:
        found.backs.append((lambda one, state: getattr(one, set_)(state), generator, getattr(generator, take)()))

    return look


def _keep_bits(found: Contents, generator: Any) -> None:
    """NumPy's generators have a state that is read and set; the new ones have it in another object."""
    bits = getattr(generator, "bit_generator", generator)
    found.backs.append((lambda one, state: setattr(one, "state", state), bits, bits.state))


_Kind = Callable[[Contents, Any], None]
_KINDS: dict[type, _Kind | None] = {}
_SLOTS: dict[type, dict[str, Any]] = {}


def _kind(cls: type) -> _Kind | None:
    """How things of a class are looked at; None if there is nothing in them, or nothing that a step should touch."""
    try:
        return _KINDS[cls]
    except KeyError:
        return _KINDS.setdefault(cls, Contents.sort(cls))


def _is_iterator(cls: type) -> bool:
    return issubclass(cls, Iterator) and not issubclass(cls, io.IOBase)
