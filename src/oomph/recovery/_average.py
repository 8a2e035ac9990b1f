"""The state of an average of the weights, which seldom says itself what that is.

One with a `state_dict` does. Of any other, everything is saved that a retry would put back and a file can hold without
being trusted: numbers, texts, tensors, arrays, modules, and containers and objects of these.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import UsageError
from ._contents import has_attributes, slot_values
from ._keepers import owner_of

_PLAIN = (bool, int, float, complex, str, type(None))
_KIND, _STATE = "oomph kind", "state"  # of what is saved as something else
_NOTHING = object()
_AS_BEFORE = "make the guard as it was made before"


def average_state(ema: Any, model: nn.Module) -> Any:
    """What a resumed run needs of an average; the model that it may hold is saved elsewhere."""
    owner = owner_of(ema)
    if owner is None:
        return None
    if _says_its_state(owner):
        return owner.state_dict()
    return _Saver(model).attributes(owner)


def set_average_state(ema: Any, state: Any) -> None:
    """Set what `average_state` gave.

    Raises:
        UsageError: the average is made of other things.
    """
    owner = owner_of(ema)
    if owner is None or state is None:
        return
    if _says_its_state(owner):
        owner.load_state_dict(state)
    elif isinstance(state, Mapping) and state.get(_KIND) == "object":
        _set_attributes(owner, state[_STATE])
    else:
        raise UsageError(f"the state of the average is no {type(owner).__name__}'s", _AS_BEFORE)


def _says_its_state(owner: Any) -> bool:
    return hasattr(owner, "state_dict") and hasattr(owner, "load_state_dict")


def _is_array(value: object) -> bool:
    return "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].ndarray)


class _Saver:
    """Turns things into what a file can hold; those that it can't hold are left out."""

    def __init__(self, model: nn.Module) -> None:
        self._seen = {id(model)}

    def attributes(self, owner: Any) -> dict[str, Any]:
        found = {**getattr(owner, "__dict__", {}), **slot_values(owner)}
        return {_KIND: "object", _STATE: self._all(found)}

    def _all(self, values: Mapping[Any, Any]) -> dict[Any, Any]:
        found = {name: self._one(value) for name, value in values.items()}
        return {name: saved for name, saved in found.items() if saved is not _NOTHING}

    def _one(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, Tensor):
            return value.detach()
        if id(value) in self._seen:
            return _NOTHING
        self._seen.add(id(value))
        return self._other(value)

    def _other(self, value: Any) -> Any:
        if isinstance(value, nn.Module):
            return {_KIND: "module", _STATE: value.state_dict()}
        if _is_array(value) and value.dtype.kind in "biuf":
            return {_KIND: "array", _STATE: torch.tensor(value)}
        if isinstance(value, dict):
            return {_KIND: "dict", _STATE: self._all(value)}
        if isinstance(value, (list, tuple)):
            return {_KIND: "list", _STATE: self._list(value)}
        if has_attributes(value) and not isinstance(value, (type, Optimizer)) and not callable(value):
            return self.attributes(value)
        return _NOTHING

    def _list(self, values: Iterable[Any]) -> list[Any]:
        return [saved for saved in map(self._one, values) if saved is not _NOTHING]


def _set_attributes(owner: Any, saved: Mapping[str, Any]) -> None:
    for name, one in saved.items():
        live = getattr(owner, name, None)
        found = _set(live, one, name)
        if found is not live:
            setattr(owner, name, found)


def _set(live: Any, saved: Any, name: object) -> Any:
    """What a thing becomes: itself with other contents where that can be done, or what was saved."""
    if isinstance(saved, Tensor):
        return _set_tensor(live, saved)
    if not isinstance(saved, Mapping) or _KIND not in saved:
        return saved
    kind, state = saved[_KIND], saved[_STATE]
    if kind == "module" and isinstance(live, nn.Module):
        live.load_state_dict(state)
    elif kind == "array":
        return _set_array(live, state)
    elif kind == "dict" and isinstance(live, (dict, type(None))):
        return _set_dict({} if live is None else live, state)
    elif kind == "list" and isinstance(live, (list, tuple, type(None))):
        return _set_list(live, state)
    elif kind == "object" and has_attributes(live):
        _set_attributes(live, state)
    else:
        raise UsageError(f"the average has a {type(live).__name__} where a {kind} was saved ({name!r})", _AS_BEFORE)
    return live


def _set_tensor(live: Any, saved: Tensor) -> Tensor:
    if not isinstance(live, Tensor):
        return saved
    if live.shape == saved.shape:
        live.detach().copy_(saved)
        return live
    return saved.to(live.device, live.dtype)


def _set_array(live: Any, saved: Tensor) -> Any:
    if _is_array(live) and live.shape == tuple(saved.shape):
        live[...] = saved.numpy()
        return live
    return saved.numpy()


def _set_dict(live: dict[Any, Any], saved: Mapping[Any, Any]) -> dict[Any, Any]:
    found = {name: _set(live.get(name), one, name) for name, one in saved.items()}
    live.update(found)
    return live


def _set_list(live: Any, saved: list[Any]) -> Any:
    """A list keeps its place; a tuple can't, but the tensors in it do."""
    old = list(live or ()) + [None] * len(saved)
    values = [_set(before, one, place) for place, (before, one) in enumerate(zip(old, saved, strict=False))]
    if isinstance(live, list):
        live[:] = values
        return live
    return tuple(values)
