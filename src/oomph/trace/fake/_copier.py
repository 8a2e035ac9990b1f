"""Copies of live objects on fake tensors.

The structure is copied: modules, optimizers, containers, and functions with what they close over. Each tensor becomes a
fake one of the same shape, so a copy needs no memory, and nothing of the original can be changed through it.
`copy.deepcopy` would copy the weights and would leave functions (hooks, a replaced `forward`) on the original.
"""

from __future__ import annotations

import copyreg
import functools
import logging
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from ._user_code import is_library_file

_SHARED = (
    type(None), bool, int, float, complex, str, bytes, range, slice, type, torch.dtype, torch.device, torch.Size,
    torch.layout, torch.memory_format, types.ModuleType, types.BuiltinFunctionType, types.CodeType, property,
    logging.Logger, PurePath,
)  # fmt: skip
_LIVE = (Tensor, nn.Module, torch.optim.Optimizer, torch.Generator)
_COPIED_TORCH = ("torch.optim", "torch.nn", "torch.amp", "torch.cuda.amp", "torch.distributions", "torch.utils.data")
_LARGE_ARRAY = 64 * 2**20  # bytes; larger NumPy arrays are data sets, which no step writes to


class FakeCopier:
    """Copies objects; what is shared between two copied objects is shared between their copies.

    Args:
        to_fake: returns the fake tensor for a real one.
    """

    def __init__(self, to_fake: Callable[[Tensor], Tensor]) -> None:
        self._to_fake = to_fake
        self._copies: dict[int, Any] = {}
        self._originals: list[Any] = []  # keeps them alive: ids must stay unique
        self._globals: dict[int, dict[str, Any]] = {}
        self.modules: list[nn.Module] = []  # the copied ones
        self.compiled = False  # True once a module of torch.compile was replaced by the module inside it

    def copy(self, value: Any) -> Any:
        """Return the copy of a value; a value without changeable parts is its own copy."""
        if isinstance(value, _SHARED) and not isinstance(value, torch.optim.Optimizer):
            return value
        if id(value) in self._copies:
            return self._copies[id(value)]
        return self._remember(value, self._new_copy(value))

    def _remember(self, original: Any, result: Any) -> Any:
        self._originals.append(original)
        return self._copies.setdefault(id(original), result)

    def _new_copy(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value if isinstance(value, FakeTensor) else self._to_fake(value)
        if isinstance(value, nn.Module):
            return self._copy_module(value)
        special = _COPY_BY_TYPE.get(type(value))
        if special is not None:
            return special(self, value)
        if type(value).__module__.partition(".")[0] == "numpy" and hasattr(value, "nbytes"):
            return value if value.nbytes > _LARGE_ARRAY else value.copy()
        return self._copy_object(value)

    def _copy_module(self, module: nn.Module) -> Any:
        if isinstance(module, torch.jit.ScriptModule):
            return module  # its code and weights are in C++
        inner = module.__dict__.get("_modules", {}).get("_orig_mod")
        if isinstance(inner, nn.Module) and type(module).__name__ == "OptimizedModule":
            self.compiled = True
            return self.copy(inner)
        result = self._remember(module, type(module).__new__(type(module)))
        self.modules.append(result)
        result.__dict__.update((name, self.copy(item)) for name, item in module.__dict__.items())
        return result

    def _copy_list(self, value: list[Any]) -> list[Any]:
        result = self._remember(value, [])
        result.extend(self.copy(item) for item in value)
        return result  # type: ignore[no-any-return]

    def _copy_dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        result = self._remember(value, {})
        result.update((self.copy(key), self.copy(item)) for key, item in value.items())
        return result  # type: ignore[no-any-return]

    def _copy_tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        items = tuple(self.copy(item) for item in value)
        unchanged = all(new is old for new, old in zip(items, value, strict=True))
        return value if unchanged else items

    def _copy_function(self, function: types.FunctionType) -> types.FunctionType:
        """Return a function whose closure, defaults and (in the user's files) global objects are copies."""
        cells = function.__closure__ or ()
        global_names = _changeable_globals(function)
        if not cells and not global_names and not function.__defaults__ and not function.__kwdefaults__:
            return function
        closure = tuple(self._copies.get(id(cell)) or self._remember(cell, types.CellType()) for cell in cells)
        scope = self._scope(function) if global_names else function.__globals__
        result = types.FunctionType(function.__code__, scope, function.__name__, None, closure or None)
        self._remember(function, result)
        result.__dict__.update(function.__dict__)
        result.__qualname__, result.__module__, result.__doc__ = (
            function.__qualname__, function.__module__, function.__doc__,
        )  # fmt: skip
        result.__defaults__ = self.copy(function.__defaults__)
        result.__kwdefaults__ = self.copy(function.__kwdefaults__)
        for cell, new_cell in zip(cells, closure, strict=True):
            if _is_filled(cell) and not _is_filled(new_cell):
                new_cell.cell_contents = self.copy(cell.cell_contents)
        for name in global_names:
            scope[name] = self.copy(function.__globals__[name])
        return result

    def _scope(self, function: types.FunctionType) -> dict[str, Any]:
        """Return the copy of a file's global names that all copied functions of that file share."""
        original = function.__globals__
        if id(original) not in self._globals:
            self._globals[id(original)] = dict(original)
        return self._globals[id(original)]

    def _copy_method(self, method: types.MethodType) -> Any:
        return types.MethodType(self.copy(method.__func__), self.copy(method.__self__))

    def _copy_partial(self, value: functools.partial[Any]) -> Any:
        return functools.partial(self.copy(value.func), *self.copy(value.args), **self.copy(value.keywords))

    def _copy_weakref(self, reference: weakref.ref[Any]) -> Any:
        target = reference()
        return reference if target is None else weakref.ref(self.copy(target))

    def _copy_generator(self, generator: torch.Generator) -> torch.Generator:
        result = torch.Generator()
        if generator.device.type == "cpu":
            result.set_state(generator.get_state())
        return result

    def _copy_object(self, value: Any) -> Any:
        """Copy any other object as `copy.deepcopy` does; locks, files, operators and the like are shared.

        So is what cleans up when it is deleted: its copy would delete or close what the original still needs.
        """
        module = type(value).__module__
        if module.partition(".")[0] == "torch" and not module.startswith(_COPIED_TORCH):
            return value
        if hasattr(type(value), "__del__"):
            return value
        try:
            reduced = copyreg.dispatch_table[type(value)](value) if type(value) in copyreg.dispatch_table else None
            reduced = reduced or value.__reduce_ex__(4)
        except Exception:  # noqa: BLE001  any class may refuse to be copied, in its own way
            return value
        if isinstance(reduced, str):
            return value
        try:
            return self._rebuild(value, *reduced)
        except Exception:  # noqa: BLE001
            self._copies[id(value)] = value
            return value

    def _rebuild(
        self, value: Any, build: Callable[..., Any], args: tuple[Any, ...], state: Any = None, *items: Any
    ) -> Any:
        result = self._remember(value, build(*self.copy(args)))
        if state is not None:
            self._set_state(result, state)
        if items and items[0] is not None:
            result.extend(self.copy(item) for item in items[0])
        if len(items) > 1 and items[1] is not None:
            for key, item in items[1]:
                result[self.copy(key)] = self.copy(item)
        return result

    def _set_state(self, result: Any, state: Any) -> None:
        copied = self.copy(state)
        if hasattr(result, "__setstate__"):
            result.__setstate__(copied)
            return
        attributes, slots = copied if isinstance(copied, tuple) and len(copied) == 2 else (copied, None)  # noqa: PLR2004
        if attributes:
            result.__dict__.update(attributes)
        for name, item in (slots or {}).items():
            object.__setattr__(result, name, item)


_COPY_BY_TYPE: dict[type, Callable[[FakeCopier, Any], Any]] = {
    list: FakeCopier._copy_list,
    dict: FakeCopier._copy_dict,
    tuple: FakeCopier._copy_tuple,
    types.FunctionType: FakeCopier._copy_function,
    types.MethodType: FakeCopier._copy_method,
    functools.partial: FakeCopier._copy_partial,
    weakref.ref: FakeCopier._copy_weakref,
    torch.Generator: FakeCopier._copy_generator,
}


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a variable that is assigned after the function was defined
        return False
    return True


def _changeable_globals(function: types.FunctionType) -> list[str]:
    """Return the global names of a function in the user's files that lead to live objects.

    Other global names stay as they are, because code keeps there what it has registered or loaded once.
    """
    return [name for name, value in _user_globals(function) if _is_live(value, {id(function)})]


def _is_live(value: object, seen: set[int]) -> bool:
    if isinstance(value, _LIVE):
        return True
    if not isinstance(value, types.FunctionType) or id(value) in seen:
        return False
    seen.add(id(value))
    return any(_is_live(item, seen) for _, item in _user_globals(value))


def _user_globals(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    if not is_library_file(function.__code__.co_filename):
        scope = function.__globals__
        yield from ((name, scope[name]) for name in dict.fromkeys(_global_names(function.__code__)) if name in scope)


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)
