"""Nested structures of tensors: what each container holds and how it is rebuilt, and walks over all of it.

Written out instead of `torch.utils._pytree`, whose walks cost a tenth of a millisecond each, and which knows neither
dataclasses nor mappings that aren't registered.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..errors import UsageError


@dataclasses.dataclass(frozen=True)
class Container:
    """A type of container.

    Attributes:
        values: returns the values that an instance holds.
        names: returns how each value is reached from the instance, such as `[0]` or `.boxes`.
        rebuild: returns a copy of an instance that holds other values.
        is_sequence: True for lists and tuples, which may hold one item per sample. A named tuple's items are fields.
    """

    values: Callable[[Any], Iterable[Any]]
    names: Callable[[Any], Iterable[str]]
    rebuild: Callable[[Any, list[Any]], Any]
    is_sequence: bool = False


def container_of(value: Any) -> Container | None:
    """Return how a value is walked, or None for tensors, plain values and objects of unknown types."""
    kind = type(value)
    try:
        return _CONTAINERS[kind]
    except KeyError:
        return _CONTAINERS.setdefault(kind, _new_container(kind))


_CONTAINERS: dict[type, Container | None] = {}  # types are few, and looking one up is faster than telling its kind


def _new_container(kind: Any) -> Container | None:
    if issubclass(kind, (list, tuple)):
        return _sequence(kind)
    if issubclass(kind, Mapping):
        return Container(lambda value: value.values(), lambda value: [f"[{name!r}]" for name in value], _mapping(kind))
    if dataclasses.is_dataclass(kind):
        fields = [field.name for field in dataclasses.fields(kind)]
        return Container(
            lambda value: [getattr(value, name) for name in fields],
            lambda _: [f".{name}" for name in fields],
            functools.partial(_rebuild_dataclass, fields),
        )
    return None


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield every tensor of a nested structure."""
    if isinstance(value, Tensor):
        yield value
        return
    container = container_of(value)
    if container is not None:
        for item in container.values(value):
            yield from tensors_in(item)


def map_tensors(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """Return a copy of a nested structure with the function applied to every tensor; other objects are shared."""
    if isinstance(value, Tensor):
        return function(value)
    container = container_of(value)
    if container is None:
        return value
    return container.rebuild(value, [map_tensors(item, function) for item in container.values(value)])


def move(value: Any, device: torch.device) -> Any:
    """Move a micro-batch to the device; containers are copied, tensors that are there already are not."""
    if isinstance(value, Tensor):
        return value if value.device == device else value.to(device, non_blocking=True)
    container = container_of(value)
    if container is None:
        return value
    if isinstance(value, PackedSequence):  # its batch sizes stay on the CPU
        packed: Any = value  # torch types `to` for dtypes only
        return packed.to(device)
    return container.rebuild(value, [move(item, device) for item in container.values(value)])


def write_versions(batch: Any) -> list[int]:
    """Return how often each tensor was written in place, as far as torch counts it."""
    return [tensor._version for tensor in tensors_in(batch) if not tensor.is_inference()]  # noqa: SLF001  no public name


def named_leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield everything that isn't a container, with the expression that reaches it."""
    container = container_of(value)
    if container is None:
        yield name, value
        return
    for suffix, item in zip(container.names(value), container.values(value), strict=True):
        yield from named_leaves(item, name + suffix)


def name_of(value: Any, root: Any, name: str) -> str | None:
    """Return the expression that reaches a value from the root, or None if it isn't in there."""
    if value is root:
        return name
    container = container_of(root)
    if container is None:
        return None
    items = zip(container.names(root), container.values(root), strict=True)
    return next(filter(None, (name_of(value, item, name + suffix) for suffix, item in items)), None)


def _sequence(kind: type) -> Container:
    if hasattr(kind, "_fields"):  # a named tuple
        return Container(
            lambda value: value,
            lambda value: [f".{name}" for name in value._fields],
            lambda value, items: type(value)._make(items),
        )
    rebuild = _rebuild_list if kind is list else _rebuild_tuple if kind is tuple else _rebuild_sequence
    return Container(
        lambda value: value, lambda value: [f"[{index}]" for index in range(len(value))], rebuild, is_sequence=True
    )


def _mapping(kind: type) -> Callable[[Any, list[Any]], Any]:
    if dataclasses.is_dataclass(kind):  # a ModelOutput of transformers, whose fields that are None have no key
        return lambda value, items: kind(**dict(zip(value, items, strict=True)))
    if kind is not dict and issubclass(kind, MutableMapping):
        return _rebuild_mapping
    return lambda value, items: dict(zip(value, items, strict=True))


def _rebuild_list(_: Any, items: list[Any]) -> Any:
    return items


def _rebuild_tuple(_: Any, items: list[Any]) -> Any:
    return tuple(items)


def _rebuild_sequence(value: Any, items: list[Any]) -> Any:
    try:
        return type(value)(items)
    except Exception as error:
        raise _not_rebuilt(value) from error


def _rebuild_mapping(value: Any, items: list[Any]) -> Any:
    """Copy a mapping that isn't a plain dict, with what it has beside its entries, such as a default factory."""
    try:
        result = copy.copy(value)
        for name, item in zip(value, items, strict=True):
            result[name] = item
    except Exception as error:
        raise _not_rebuilt(value) from error
    return result


def _rebuild_dataclass(fields: list[str], value: Any, items: list[Any]) -> Any:
    """Copy a dataclass without its constructor, which may convert or reject values."""
    result = copy.copy(value)
    for name, item in zip(fields, items, strict=True):
        object.__setattr__(result, name, item)  # a frozen one, too
    return result


def _not_rebuilt(value: Any) -> UsageError:
    return UsageError(
        f"a {type(value).__name__} can't be rebuilt with other values", "use a list, a tuple, a dict or a dataclass"
    )
