"""Items of loops: which container or tensor a loop's name takes its values from."""

from __future__ import annotations

import ast


def item_source(target: ast.expr, iterable: ast.expr, name: ast.expr) -> ast.expr | None:
    """Return what the items of a loop's name are parts of: `d` for `v` in `for k, v in d.items()`."""
    if not isinstance(name, ast.Name):
        return None
    if isinstance(target, ast.Name):
        if target.id != name.id:
            return None
        func = iterable.func if isinstance(iterable, ast.Call) else None
        is_values = isinstance(func, ast.Attribute) and func.attr == "values"
        return func.value if is_values and isinstance(func, ast.Attribute) else _plain(iterable)
    if not isinstance(target, ast.Tuple) or not isinstance(iterable, ast.Call):
        return None
    func = iterable.func
    places = [place for place, item in enumerate(target.elts) if isinstance(item, ast.Name) and item.id == name.id]
    if not places:
        nested = target.elts[-1]
        is_nested = isinstance(func, ast.Name) and func.id == "enumerate" and isinstance(nested, ast.Tuple)
        return item_source(nested, iterable.args[0], name) if is_nested and iterable.args else None
    if isinstance(func, ast.Attribute) and func.attr == "items":
        return func.value if places == [1] else None
    if isinstance(func, ast.Name) and func.id == "zip" and places[0] < len(iterable.args):
        return _plain(iterable.args[places[0]])
    if isinstance(func, ast.Name) and func.id == "enumerate" and iterable.args and places == [1]:
        return _plain(iterable.args[0])
    return None


def _plain(node: ast.expr) -> ast.expr | None:
    """Return a node that can be a tensor or a container of tensors: a name or a part of one."""
    return node if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else None
