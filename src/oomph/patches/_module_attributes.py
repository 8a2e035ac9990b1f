"""Attributes of modules that are state: what a forward may change besides buffers, such as a counter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

_NO_STATE_PACKAGES = frozenset({"torch", "builtins", "abc", "typing"})
_LIGHTNING_NAMES = frozenset({"_trainer", "_fabric"})  # the Trainer refers to all that a run has
_INTERNAL_NAMES = frozenset({*vars(nn.Module()), "_compiled_call_impl"}) - {"training"}


def attribute_tables(modules: Iterable[nn.Module]) -> list[dict[str, Any]]:
    """Return the attributes of modules that may be state, each module's once."""
    return [vars(module) for module in dict.fromkeys(modules) if has_attribute_state(module)]


def has_attribute_state(module: nn.Module) -> bool:
    """Return False for layers that are torch's own, which keep no state in attributes."""
    # All bases count, because torch.nn.utils.parametrize and FSDP2 derive classes from those of the user.
    return any(base.__module__.partition(".")[0] not in _NO_STATE_PACKAGES for base in type(module).__mro__)


def is_internal(name: str) -> bool:
    """Return True for what every module has: tables of parameters, buffers, modules and hooks; they are no state."""
    return name in _INTERNAL_NAMES or name in _LIGHTNING_NAMES


def is_copied(value: Tensor) -> bool:
    """Return True for a tensor that a forward may write to in place: no weight, no part of a graph."""
    return not (value.requires_grad or value.is_inference())


def rebind(table: dict[str, Any], values: dict[str, Any]) -> None:
    """Give a module's attributes, or buffers, the values and names that they had; internal tables stay."""
    for name in [name for name in table.keys() - values.keys() if not is_internal(name)]:
        del table[name]
    table.update({name: value for name, value in values.items() if not is_internal(name)})
