"""Rule `retain-graph-in-loop`: retain_graph=True on a backward whose graph nothing uses again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import (
    Code,
    EventKind,
    Function,
    Loop,
    assigned_value,
    backward_operands,
    events_in,
    last_assignment,
    last_part,
    model_calls,
    training_calls,
    walk,
)
from ...sources import Document

_MAX_DEPTH = 12
_CUT = {"detach", "item", "numpy", "tolist", "data", "size", "argmax"}
# Functions whose result has no graph that two losses could share.
_PLAIN = {
    "ones", "zeros", "full", "rand", "randn", "randint", "arange", "tensor", "ones_like", "zeros_like", "full_like",
    "rand_like", "randn_like", "empty", "next", "len", "range", "iter", "to", "cuda", "device", "size", "float", "long",
    "Variable", "from_numpy", "get_batch", "init_hidden", "init_state", "sample_noise", "int", "int64", "view", "fill_",
    "zero_grad", "train", "eval", "step", "item", "print", "enumerate", "zip", "requires_grad_",
}  # fmt: skip
_SECOND_USE = re.compile(r"grad|backward|hessian|jacobian|penalty|fisher|hvp|sam_|closure", re.IGNORECASE)
_HARMLESS = {
    "zero_grad", "clip_grad_norm_", "clip_grad_value_", "print", "append", "update", "log", "info", "float",
    "add_scalar", "isnan", "isfinite", "write", "set_postfix", "set_description",
}  # fmt: skip


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    calls = sorted(training_calls(code), key=lambda call: (call.lineno, call.col_offset))
    for call in calls:
        keyword = _retention(code, call)
        loop = next(code.loops_around(call), None) or _step_function(code, call)
        if keyword is None or loop is None or not _is_graph_of_iteration(code, call, loop):
            continue
        if _is_used_again(code, call, loop, calls):
            continue
        message = (
            f"`{code.source(call)}` keeps the graph of the iteration although no other backward uses it: remove "
            f"{code.source(keyword)}, and detach() what a later iteration takes over"
        )
        yield Problem(code.span(call), message)


def _retention(code: Code, call: ast.Call) -> ast.keyword | None:
    keywords = {keyword.arg: keyword for keyword in call.keywords}
    if not isinstance(call.func, ast.Attribute) or "create_graph" in keywords or "inputs" in keywords:
        return None
    keyword = keywords.get("retain_graph")
    return keyword if keyword is not None and code.constant(keyword.value) is True else None


def _step_function(code: Code, call: ast.Call) -> Function | None:
    """Return the function around a backward if it is one step: it steps an optimizer too."""
    function = code.function(call)
    if function is None:
        return None
    is_step = any(event.kind is EventKind.STEP for event in events_in(code, function))
    return function if is_step else None


def _is_graph_of_iteration(code: Code, call: ast.Call, loop: Loop | Function) -> bool:
    """Return True if the loop computes all of the loss's graph itself."""
    sources = _sources(code, call)
    if sources is None:
        return False
    inside = [source for source in sources if code.is_inside(source, loop)]
    outside = [source for source in sources if source not in inside and source in model_calls(code)]
    return bool(inside) and not outside


def _is_used_again(code: Code, call: ast.Call, loop: Loop | Function, calls: list[ast.Call]) -> bool:
    """Return True if another backward of the iteration shares a part of the graph, or may do so."""
    sources = _sources(code, call) or set()
    shared = sources & (model_calls(code) | {item for item in sources if last_part(code.name(item.func)) not in _PLAIN})
    for other in calls:
        is_later = (other.lineno, other.col_offset) > (call.lineno, call.col_offset)
        if other is call:
            continue
        # A gradient that was computed before, such as a penalty, needs nothing from this backward.
        if not is_later or code.function(other) is not code.function(call):
            continue
        is_inside = code.is_inside(other, loop)
        if is_inside and not (
            isinstance(other.func, ast.Attribute) and other.func.attr in {"backward", "manual_backward"}
        ):
            return True  # torch.autograd.grad
        # A backward behind the loop may use the graph of the last iteration.
        others = _sources(code, other)
        if (others is None and is_inside) or (others or set()) & shared:
            return True
        if is_inside and _subjects(code, other) & _subjects(code, call):
            return True
    return any(
        _may_use_graph(code, node, _subjects(code, call))
        for node in walk(loop)
        if isinstance(node, ast.Call) and node not in calls and node.lineno > call.lineno
    )


def _may_use_graph(code: Code, call: ast.Call, subjects: set[str]) -> bool:
    """Return True if a function may run another backward: by its name, or because it receives the loss."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else last_part(code.name(call.func))
    if name in _HARMLESS:
        return False
    return _SECOND_USE.search(name) is not None or any(code.name(argument) in subjects for argument in call.args)


def _subjects(code: Code, call: ast.Call) -> set[str]:
    return {name for operand in backward_operands(call) if (name := code.name(operand))}


def _sources(code: Code, call: ast.Call) -> set[ast.Call] | None:
    """Return the calls whose results are part of a loss's graph; None if some of it is unknown."""
    sources: set[ast.Call] = set()
    operands = backward_operands(call)
    for operand in operands:
        if not _collect(code, operand, sources, _MAX_DEPTH):
            return None
    return sources


def _collect(code: Code, node: ast.expr, sources: set[ast.Call], depth: int) -> bool:
    """Add the calls that an expression depends on; False if a name comes from a function's argument or a loop."""
    if depth <= 0 or isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Call):
        return _collect_call(code, node, sources, depth)
    name = code.name(node)
    if name is not None:
        return _collect_name(code, node, name, sources, depth)
    children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    known = [_collect(code, child, sources, depth - 1) for child in children]
    # A factor of a loss, such as its weight, brings no graph.
    is_product = isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div))
    return any(known) if is_product else all(known)


def _collect_call(code: Code, call: ast.Call, sources: set[ast.Call], depth: int) -> bool:
    func = call.func
    last = func.attr if isinstance(func, ast.Attribute) else last_part(code.name(func))
    if last in _CUT:
        return True
    is_method = isinstance(func, ast.Attribute) and code.name(func) is None
    if last not in _PLAIN:
        sources.add(call)
    parts = [*call.args, *(keyword.value for keyword in call.keywords)]
    is_known = not isinstance(func, ast.Attribute) or _collect_receiver(code, func, sources, depth, is_method=is_method)
    for part in parts:
        _collect(code, part, sources, depth - 1)  # an unknown argument is data
    return is_known


def _collect_receiver(code: Code, func: ast.Attribute, sources: set[ast.Call], depth: int, *, is_method: bool) -> bool:
    """Follow `loss` in `loss.mean()`; modules and packages in front of a function bring no graph."""
    name = code.name(func.value)
    if is_method:
        return _collect(code, func.value, sources, depth - 1)
    if name is not None and last_assignment(code, name, func) is not None and name not in code.aliases:
        _collect(code, func.value, sources, depth - 1)
    return True


def _collect_name(code: Code, node: ast.expr, name: str, sources: set[ast.Call], depth: int) -> bool:
    assignment = last_assignment(code, name, node)
    if assignment is None:
        if isinstance(node, ast.Attribute):
            return node.attr in _CUT or _collect(code, node.value, sources, depth - 1)
        return False
    if assignment.kind in {"for", "argument", "with", "def"}:
        return False
    value = assigned_value(assignment)
    if value is None:
        return False
    is_known = _collect(code, value, sources, depth - 1)
    if assignment.kind == "+=":
        previous = last_assignment(code, name, assignment.statement)
        before = assigned_value(previous) if previous else None
        return is_known and before is not None and _collect(code, before, sources, depth - 1)
    return is_known


RETAIN_GRAPH_IN_LOOP = Rule(
    "retain-graph-in-loop",
    RuleFamily.LEAKS,
    "A graph is retained that nothing uses again",
    _check,
    triggers=("retain_graph",),
)
