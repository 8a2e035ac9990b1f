"""Gradient mode: which code runs under `no_grad`, `inference_mode` or autocast, by blocks and decorators."""

from __future__ import annotations

import ast

from ._code import Code, Function

_NO_GRAD = {"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode"}
_SET_GRAD = {"torch.set_grad_enabled", "torch.autograd.set_grad_enabled"}
_AUTOCAST = {"torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast"}


def is_no_grad(code: Code, node: ast.expr) -> bool:
    """Return True if a context manager or decorator switches gradients off."""
    function = node.func if isinstance(node, ast.Call) else node
    name = code.resolve(function)
    if name in _SET_GRAD and isinstance(node, ast.Call):
        return bool(node.args) and code.constant(node.args[0]) is False
    return name in _NO_GRAD or name.endswith((".no_grad", ".inference_mode")) or name in {"no_grad", "inference_mode"}


def defined_decorator(code: Code, decorator: ast.expr) -> list[Function]:
    """Return the function of the document that a decorator calls, in a list that is empty if there is none."""
    name = code.name(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return [function for function in code.functions if function.name == name]


def runs_without_grad(code: Code, node: ast.AST) -> bool:
    """Return True if a `with` block or decorator around a node switches gradients off."""
    for outer in code.ancestors(node):
        if isinstance(outer, (ast.With, ast.AsyncWith)) and any(
            is_no_grad(code, item.context_expr) for item in outer.items
        ):
            return True
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
            is_no_grad(code, decorator) for decorator in outer.decorator_list
        ):
            return True
    return False


def autocast_block(code: Code, node: ast.AST) -> ast.With | None:
    """Return the innermost `with autocast(…)` block around a node, within its function."""
    for outer in code.ancestors(node):
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(outer, ast.With) and any(is_autocast(code, item.context_expr) for item in outer.items):
            return outer
    return None


def is_autocast(code: Code, node: ast.expr) -> bool:
    """Return True if an expression is a call of torch's autocast."""
    return code.call_name(node) in _AUTOCAST
