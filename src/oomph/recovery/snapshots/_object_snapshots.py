"""Snapshots of objects: the attributes of modules, and whatever else a forward changes, such as metrics."""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import itertools
import operator
import random
import types
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...batch import tensors_in
from ...errors import UsageError
from ...patches import attribute_tables, has_attribute_state, is_copied, is_internal, rebind
from ._snapshots import MAX_KEPT_BYTES, MODULE_SCANS, Restore, TensorCopies, deep_copy

_CONTAINERS = (list, dict, set, collections.deque)
_MAX_ITEMS = 10_000  # of a container that is copied
_MAX_NESTED = 100_000  # values that are looked at for containers
_MAX_TENSOR_BYTES = 1 << 20  # of a tensor that an object keeps count in
_IMMUTABLE_TYPES = frozenset({bool, int, float, complex, str, bytes, type(None)})


class ModuleAttributeSnapshot:
    """The attributes of modules: a counter, a hidden state, a running metric.

    What they are bound to is restored, the values of tensors, and what lists and other containers hold, also those
    in dicts: many models collect their losses or outputs in such attributes. The contents of other objects are not:
    `ObjectSnapshot` copies these, and is restored later.
    """

    def __init__(self, *modules: nn.Module) -> None:
        self._modules, self._scans = modules, MODULE_SCANS
        self._tables: list[dict[str, Any]] = []
        self._slots: list[tuple[dict[str, Any], str]] = []  # the table and name of each attribute
        self._size = 0  # of all tables
        self._copies = TensorCopies()

    def capture(self) -> Restore:
        """Remember the attributes and copy the tensors among them."""
        if self._scans or sum(map(len, self._tables)) != self._size:
            self._scan()
        tables, saved = self._tables, [table.copy() for table in self._tables]
        values = [table.get(name) for table, name in self._slots]
        # Most values are numbers, and isinstance() of a tensor is slow.
        others = [value for value in values if type(value) not in _IMMUTABLE_TYPES]
        tensors = [value for value in others if isinstance(value, Tensor) and is_copied(value)]
        restore_items = _capture_items(others)
        restore_values = self._copies.capture(tensors)
        if self._copies.nbytes > MAX_KEPT_BYTES:
            self._copies = TensorCopies()

        def restore() -> None:
            self._scans = MODULE_SCANS
            restore_values()
            restore_items()
            for table, attributes in zip(tables, saved, strict=True):
                rebind(table, attributes)

        return restore

    def _scan(self) -> None:
        self._scans = max(0, self._scans - 1)
        self._tables = attribute_tables(itertools.chain.from_iterable(module.modules() for module in self._modules))
        self._slots = [
            (table, name) for table in self._tables for name in table if name != "training" and not is_internal(name)
        ]
        self._size = sum(map(len, self._tables))


class PlainAttributeSnapshot:
    """What a large object such as a Trainer counts and collects in attributes: numbers, texts, tensors, containers.

    Of containers it restores what they hold, also in dicts in dicts, and of tensors up to 1 MiB the values. Attributes
    that are other objects stay as they are.

    Args:
        target: the object.
        exclude: names of attributes that stay as they are.
    """

    def __init__(self, target: object, exclude: Iterable[str] = ()) -> None:
        self._table, self._exclude = vars(target), frozenset(exclude)

    def capture(self) -> Restore:
        """Remember the attributes."""
        table, known = self._table, frozenset(self._table)
        saved = self._plain()
        containers = _containers(saved.values())
        items = [item for value in containers if isinstance(value, dict) for item in value.values()]
        tensors = [value for value in (*saved.values(), *items) if isinstance(value, Tensor)]
        restore_items = _capture_items(containers)
        restore_values = TensorCopies().capture([tensor for tensor in tensors if tensor.nbytes <= _MAX_TENSOR_BYTES])

        def restore() -> None:
            restore_values()
            restore_items()
            for name in self._plain().keys() - known:
                del table[name]
            table.update(saved)

        return restore

    def _plain(self) -> dict[str, Any]:
        return {name: value for name, value in self._table.items() if name not in self._exclude and _is_plain(value)}


def _is_plain(value: object) -> bool:
    return type(value) in _IMMUTABLE_TYPES or isinstance(value, (Tensor, tuple, *_CONTAINERS))


class ObjectSnapshot:
    """The state of any object that a step changes: a GradScaler, a scheduler, an EMA, a metric.

    Containers, tensors and modules are restored in place. An object with `state_dict()` and `load_state_dict()` is
    saved through these, any other object by a deep copy of its attributes.

    Args:
        target: the object. If it is an excluded module, or a part of one, all attributes of it and of its submodules
            are saved, but neither parameters nor the values of buffers.
        exclude: modules and optimizers that other snapshots save. References to them, and to the submodules, parameters
            and buffers of the modules, are kept as they are.
        submodules: save the attributes of a module's submodules, too, as metrics need it.
    """

    def __init__(self, target: object, *, exclude: Iterable[object] = (), submodules: bool = True) -> None:
        self._target, self._exclude, self._submodules = target, tuple(exclude), submodules

    def capture(self) -> Restore:
        """Copy the state."""
        restores, tensors = self.collect()
        restore_values = TensorCopies().capture(tensors)
        return lambda: [restore() for restore in (restore_values, *restores)]

    def collect(self) -> tuple[list[Restore], list[Tensor]]:
        """Return functions that restore what was deep-copied, and the tensors to restore in place."""
        target: Any = self._target
        has_state_dict = _has_state_dict(target) and not isinstance(target, nn.Module)
        kept = {} if has_state_dict else self._kept()
        restores: list[Restore] = []
        tensors: list[Tensor] = []
        if isinstance(target, PlainAttributeSnapshot):
            restores.append(target.capture())
        elif isinstance(target, Tensor):
            tensors.append(target)
        elif isinstance(target, nn.Module):
            tensors += [tensor for tensor in (*target.parameters(), *target.buffers()) if id(tensor) not in kept]
            owners = self._owners(target, kept)
            buffers = [(table, dict(table)) for table in (owner._buffers for owner in owners)]  # noqa: SLF001  to rebind
            restores.append(lambda: [table.update(buffer) for table, buffer in buffers])
            restores.append(_capture_attributes(owners, tensors, kept))
        elif isinstance(target, (list, dict, set, collections.deque)):
            saved = deep_copy(target, kept)
            restores.append(lambda: _refill(target, deep_copy(saved, kept)))
            if hasattr(target, "__dict__") or _slots(target):
                restores.append(_capture_attributes([target], tensors, kept))
        elif isinstance(target, (torch.Generator, random.Random)):
            restores.append(_capture_generator(target))
        elif has_state_dict and not isinstance(target, torch.amp.GradScaler):
            state = target.state_dict()
            tensors += tensors_in(state)
            kept = {id(tensor): tensor for tensor in tensors}
            saved = deep_copy(state, kept)
            restores.append(lambda: target.load_state_dict(deep_copy(saved, kept)))
        elif _attributes(target):  # a GradScaler, too: its state_dict() waits for the GPU
            restores.append(_capture_attributes([target], tensors, kept))
        return restores, tensors

    def _owners(self, target: nn.Module, kept: Mapping[int, object]) -> list[nn.Module]:
        """Return the modules whose attributes are saved: those of an excluded one too, if it is the target itself."""
        owners = list(target.modules()) if self._submodules else [target]
        if id(target) in kept:  # the model, with many layers of torch
            return [owner for owner in owners if has_attribute_state(owner)]
        return [owner for owner in owners if id(owner) not in kept]

    def _kept(self) -> dict[int, object]:
        """Return the objects that deep copies refer to instead of copying them, by id."""
        references = (reference() for reference in self._references)
        return {id(item): item for item in references if item is not None}

    @functools.cached_property
    def _references(self) -> list[weakref.ref[Any]]:
        # Searching a large model takes milliseconds, so this happens once. Weak, so that replaced weights are freed.
        parts = list(self._exclude)
        for module in self._exclude:
            if isinstance(module, nn.Module):
                parts += [*module.modules(), *module.parameters(), *module.buffers()]
        return [weakref.ref(part) for part in parts]


def _capture_items(values: Iterable[Any]) -> Restore:
    """Remember what containers hold, and the containers in dicts; of a very long list, only its length."""
    saved = [(value, copy.copy(value) if len(value) <= _MAX_ITEMS else len(value)) for value in _containers(values)]

    def restore() -> None:
        for value, items in saved:
            if isinstance(items, int):
                if isinstance(value, list):
                    del value[items:]  # it has grown by appending
            elif not _holds_same(value, items):
                _refill(value, items)

    return restore


def _containers(values: Iterable[Any]) -> list[Any]:
    """Return the containers among values, and those in dicts, each once."""
    containers: dict[int, Any] = {}
    queue = list(values)
    for value in queue:  # it grows
        if isinstance(value, _CONTAINERS) and id(value) not in containers:
            containers[id(value)] = value
            if isinstance(value, dict) and len(value) <= _MAX_ITEMS and len(queue) <= _MAX_NESTED:
                queue += value.values()
    return list(containers.values())


def _holds_same(first: Any, second: Any) -> bool:
    if len(first) != len(second):
        return False
    if isinstance(first, dict):
        return all(map(operator.is_, first.values(), second.values())) and all(map(operator.is_, first, second))
    return first == second if isinstance(first, set) else all(map(operator.is_, first, second))


def _capture_generator(generator: torch.Generator | random.Random) -> Restore:
    if isinstance(generator, random.Random):
        state = generator.getstate()
        return lambda: generator.setstate(state)
    tensor = generator.get_state()
    return lambda: generator.set_state(tensor)


def _capture_attributes(owners: Sequence[object], tensors: list[Tensor], kept: Mapping[int, object]) -> Restore:
    """Copy attributes; those that are tensors, or modules with tensors, are added to `tensors` instead."""
    tables = [_attributes(owner) for owner in owners]
    references = dict(kept)
    for value in [value for table in tables for value in table.values()]:
        if isinstance(value, (nn.Module, Tensor)) and id(value) not in references:
            references[id(value)] = value
            parts = (*value.parameters(), *value.buffers()) if isinstance(value, nn.Module) else (value,)
            tensors += [tensor for tensor in parts if id(tensor) not in kept]
    saved = deep_copy(tables, references)  # together, so that attributes which are the same object stay so

    def restore() -> None:
        for owner, attributes in zip(owners, deep_copy(saved, references), strict=True):
            _set_attributes(owner, attributes)

    return restore


def _attributes(target: Any) -> dict[str, Any]:
    """Return the attributes of an object, in its slots too, without the tables of a module."""
    attributes: dict[str, Any] = {}
    for name, member in _slots(target).items():
        with contextlib.suppress(AttributeError):  # an empty slot
            attributes[name] = member.__get__(target)
    attributes.update(getattr(target, "__dict__", {}))
    if isinstance(target, nn.Module):
        return {name: value for name, value in attributes.items() if not is_internal(name)}
    return attributes


def _set_attributes(target: Any, attributes: Mapping[str, Any]) -> None:
    slots, table = _slots(target), getattr(target, "__dict__", {})
    for name in _attributes(target).keys() - attributes.keys():
        if name in slots:
            slots[name].__delete__(target)
        else:
            del table[name]
    for name, value in attributes.items():
        if name in slots:
            slots[name].__set__(target, value)
        else:
            table[name] = value


def _slots(target: object) -> dict[str, types.MemberDescriptorType]:
    members: dict[str, types.MemberDescriptorType] = {}
    for kind in type(target).__mro__:
        if "__slots__" in vars(kind):  # built-in types have such members, too
            members |= {name: item for name, item in vars(kind).items() if isinstance(item, types.MemberDescriptorType)}
    return members


def _has_state_dict(target: object) -> bool:
    return hasattr(target, "state_dict") and hasattr(target, "load_state_dict")


def _refill(container: Any, values: Any) -> None:
    container.clear()
    if isinstance(container, (list, collections.deque)):
        container.extend(values)
    else:
        container.update(values)


def check_restorable(targets: Iterable[object], exclude: Iterable[object] = ()) -> None:
    """Check that the state of user objects can be saved and restored.

    Args:
        targets: the objects.
        exclude: modules and optimizers that they may refer to.

    Raises:
        UsageError: an object has no state, or its state can't be copied.
    """
    for target in targets:
        try:
            restores, tensors = ObjectSnapshot(target, exclude=exclude).collect()
        except Exception as error:
            raise UsageError(
                f"extra_state has a {type(target).__name__} that can't be copied ({type(error).__name__}: {error})",
                "pass the part of it that changes, or give it state_dict() and load_state_dict()",
            ) from error
        if not restores and not tensors:
            raise UsageError(
                f"extra_state has a {type(target).__name__} without any state that can be saved",
                "pass an object with attributes or state_dict(), a container, a tensor or a torch.Generator",
            )


def owner_of(function: Any) -> Any:
    """Return the object that a bound method belongs to, or the argument itself."""
    return getattr(function, "__self__", function)


def modules_of(target: Any) -> list[nn.Module]:
    """Return the modules of a loss or an EMA: itself, or those in its attributes."""
    owner = owner_of(target)
    candidates = [owner] if isinstance(owner, nn.Module) else getattr(owner, "__dict__", {}).values()
    return [candidate for candidate in candidates if isinstance(candidate, nn.Module)]
