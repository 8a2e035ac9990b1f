"""Autocast blocks: which code runs under one, and its type."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator

from ...analysis import Code, is_autocast, last_part, walk

_MAX_DEPTH = 3  # names that refer to names


class Precision(enum.Enum):
    """The type that autocast computes in."""

    HALF = "float16"
    BFLOAT16 = "bfloat16"
    UNKNOWN = "unknown"


_TYPES = {
    "torch.float16": Precision.HALF,
    "torch.half": Precision.HALF,
    "torch.bfloat16": Precision.BFLOAT16,
}


def autocast_calls(code: Code, node: ast.expr, depth: int = 0) -> list[ast.Call]:
    """Return the calls of autocast that a context manager may be, also through a name or a conditional."""
    if isinstance(node, ast.Call):
        name = code.name(node.func) or ""
        return [node] if is_autocast(code, node) or name.endswith(("accelerator.autocast", "fabric.autocast")) else []
    if depth >= _MAX_DEPTH:
        return []
    if isinstance(node, ast.IfExp):
        return [*autocast_calls(code, node.body, depth + 1), *autocast_calls(code, node.orelse, depth + 1)]
    if isinstance(node, (ast.Name, ast.Attribute)):
        values = [value for value in code.values(node) if not isinstance(value, (ast.Name, ast.Attribute))]
        return [call for value in values for call in autocast_calls(code, value, depth + 1)]
    return []


def enclosing_autocast(code: Code, node: ast.AST) -> ast.Call | None:
    """Return the innermost autocast around a node within its function, unless it is switched off."""
    for outer in code.ancestors(node):
        items = [item.context_expr for item in outer.items] if isinstance(outer, (ast.With, ast.AsyncWith)) else []
        is_function = isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            items = outer.decorator_list
        for item in items:
            calls = autocast_calls(code, item)
            if calls:
                return calls[0] if is_enabled(code, calls[0]) else None
        if is_function or isinstance(outer, ast.Lambda):
            return None
    return None


def is_enabled(code: Code, call: ast.Call) -> bool:
    """Return True unless a constant switches an autocast or scaler off."""
    enabled = next((item.value for item in call.keywords if item.arg == "enabled"), None)
    if enabled is None and call.args and code.call_name(call) == "torch.cuda.amp.autocast":
        enabled = call.args[0]
    return enabled is None or code.constant(enabled) is not False


def region_precisions(code: Code, region: ast.AST, piece: int | None = None) -> set[Precision]:
    """Return the types of the autocasts in a region."""
    return {autocast_precision(code, call) for call in _region_calls(code, region, piece)}


def _region_calls(code: Code, region: ast.AST, piece: int | None) -> Iterator[ast.Call]:
    for node in walk(region):
        if isinstance(node, (ast.With, ast.AsyncWith)) and (piece is None or code.piece(node) == piece):
            for item in node.items:
                yield from (call for call in autocast_calls(code, item.context_expr) if is_enabled(code, call))


def autocast_precision(code: Code, call: ast.Call) -> Precision:
    """Return the type of an autocast; float16 is the default on GPUs, bfloat16 on the CPU."""
    dtype = next((item.value for item in call.keywords if item.arg == "dtype"), None)
    is_old = code.call_name(call).startswith(("torch.cuda.amp.", "torch.cpu.amp."))
    if dtype is None and len(call.args) > 1:
        dtype = call.args[1]
    if dtype is not None:
        return type_of(code, dtype)
    device = next((item.value for item in call.keywords if item.arg == "device_type"), None)
    device = device or (call.args[0] if call.args and not is_old else None)
    if last_part(code.call_name(call)) != "autocast" or code.constant(device) == "cpu":
        return Precision.UNKNOWN
    is_framework = not code.call_name(call).startswith("torch")
    is_gpu = is_old or code.constant(device) == "cuda"
    return Precision.HALF if is_gpu and not is_framework else Precision.UNKNOWN


def type_of(code: Code, node: ast.expr | None, depth: int = 0) -> Precision:
    """Return the type that an expression is, if all values of its name agree."""
    name = code.resolve(node)
    if name in _TYPES:
        return _TYPES[name]
    if isinstance(node, ast.Constant):
        return {"float16": Precision.HALF, "bfloat16": Precision.BFLOAT16}.get(str(node.value), Precision.UNKNOWN)
    if isinstance(node, (ast.Name, ast.Attribute)) and depth < _MAX_DEPTH:
        assigned = code.assignments(name, node) if "." not in name or name.startswith("self.") else []
        values = code.values(node)
        kinds = {type_of(code, value, depth + 1) for value in values if not isinstance(value, ast.IfExp)}
        if len(kinds) == 1 and len(values) == len(assigned) and not any(isinstance(v, ast.IfExp) for v in values):
            return kinds.pop()
    return Precision.UNKNOWN
