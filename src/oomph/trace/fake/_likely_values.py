"""What is likely about tensors whose values are unknown: two values differ, and one element of a one-hot row is set."""

from __future__ import annotations

from typing import Any

from torch import Tensor

LIKELY = "_oomph_likely"
DENSITY = "_oomph_density"
_LIKELY_RESULTS = {"aten::eq": False, "aten::ne": True, "aten::isnan": False, "aten::isinf": False}
_NEGATIONS = {"aten::logical_not", "aten::bitwise_not"}
_KEEP_LIKELY = {"aten::any", "aten::all", "aten::logical_and", "aten::bitwise_and", "aten::logical_or"}
_KEEP_BOTH = {
    "aten::view", "aten::_unsafe_view", "aten::permute", "aten::transpose", "aten::select", "aten::slice",
    "aten::index", "aten::squeeze", "aten::unsqueeze", "aten::expand", "aten::clone", "aten::detach", "aten::alias",
    "aten::_to_copy", "aten::t", "aten::unbind", "aten::reshape", "aten::lift_fresh",
}  # fmt: skip


def copy_traits(func: Any, args: tuple[Any, ...], out: Any) -> None:
    """Give an operation's result what is likely about it."""
    name = func._schema.name
    if name in _LIKELY_RESULTS:
        setattr(out, LIKELY, _LIKELY_RESULTS[name])
    elif name in _KEEP_BOTH or name in _KEEP_LIKELY or name in _NEGATIONS:
        source = args[0]
        likely = getattr(source, LIKELY, None)
        if likely is not None:
            _set(out, LIKELY, likely if name not in _NEGATIONS else not likely)
        density = getattr(source, DENSITY, None) if name in _KEEP_BOTH else None
        if density is not None:
            _set(out, DENSITY, density)


def _set(out: Any, name: str, value: object) -> None:
    for tensor in out if isinstance(out, (list, tuple)) else (out,):
        if isinstance(tensor, Tensor):
            setattr(tensor, name, value)
