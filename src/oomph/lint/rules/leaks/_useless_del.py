"""Rule `useless-del`: `del` of a name although something else holds the object, so that nothing is freed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import (
    Assignment,
    Code,
    Function,
    is_loss_function,
    is_optimizer,
    last_assignment,
    makes_other_object,
    model_calls,
    model_names,
    walk,
)
from ...sources import Document, DocumentKind, split_lines

_FREEING = {"torch.cuda.empty_cache", "gc.collect", "torch.mps.empty_cache", "torch.xpu.empty_cache"}
_FREEING_WORDS = ("free", "memory", "release", "gpu", "vram", "leak", "oom")
_CLEANUP = {
    *_FREEING,
    "print",
    "torch.cuda.synchronize",
    "torch.cuda.ipc_collect",
    "torch.cuda.reset_peak_memory_stats",
}
_TEMPORARIES = {"enumerate", "zip", "range", "iter", "map", "filter", "reversed", "tqdm"}
_MAX_CLEANUP_STATEMENTS = 8


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for delete in code.nodes(ast.Delete):
        for target in delete.targets:
            if isinstance(target, ast.Name) and (reason := _reason(document, delete, target)) is not None:
                yield Problem(code.span(delete), f"`del {target.id}` frees nothing: {reason}")
                break


def _reason(document: Document, delete: ast.Delete, target: ast.Name) -> str | None:
    """Return why a deletion frees nothing; None if it may free something or isn't about memory."""
    code = document.code
    assignment = last_assignment(code, target.id, delete)
    function = code.function(delete)
    if assignment is None:
        return None
    if assignment.kind == "argument" and isinstance(assignment.statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        is_cleanup = function is assignment.statement and _is_cleanup(code, assignment.statement)
        return (
            f"the caller still holds what {target.id} refers to: delete it where it is created" if is_cleanup else None
        )
    if _is_end(code, delete) and _is_model_output(code, delete, target):
        return "the function ends right after it, which frees the same: remove it"
    if not _is_about_memory(document, delete, target) and not _is_collected(code, delete, assignment):
        return None
    if assignment.kind == "for" and isinstance(assignment.statement, (ast.For, ast.AsyncFor)):
        return _reason_of_loop(code, delete, assignment.statement, target)
    holder = _other_holder(document, delete, target)
    return f"{holder} still holds the object: delete that too" if holder else None


def _is_cleanup(code: Code, function: Function) -> bool:
    """Return True if a function only deletes, collects and empties the cache."""
    body = [item for item in function.body if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))]
    is_freeing = False
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            name = code.call_name(statement.value)
            is_freeing = is_freeing or name in _FREEING
            if name not in _CLEANUP:
                return False
        elif not isinstance(statement, (ast.Delete, ast.Pass, ast.Import, ast.If)):
            return False
    return is_freeing and len(body) <= _MAX_CLEANUP_STATEMENTS


def _reason_of_loop(code: Code, delete: ast.Delete, loop: ast.For | ast.AsyncFor, target: ast.Name) -> str | None:
    """Return the reason if the loop goes over a list that lives on; a loader or generator gives new objects."""
    source = loop.iter
    if isinstance(source, ast.Call):
        is_wrapped = code.call_name(source) in _TEMPORARIES - {"range", "map", "filter"} and len(source.args) == 1
        source = source.args[0] if is_wrapped else source
    if (
        not isinstance(loop.target, ast.Name)
        or loop.target.id != target.id
        or loop.body[-1:] == []
        or not code.is_inside(delete, loop)
    ):
        return None
    is_list = isinstance(source, ast.Name) and any(
        isinstance(value, (ast.List, ast.ListComp, ast.Tuple)) for value in code.values(source)
    )
    is_only = all(isinstance(statement, (ast.Delete, ast.Expr)) for statement in loop.body)
    is_display = isinstance(source, (ast.List, ast.Tuple))
    if is_display and is_only:
        return f"{target.id} is only the loop's name for it: delete the names in {code.source(source)} themselves"
    name = code.name(source)
    if name is None or not (is_list or is_only):
        return None
    if any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"clear", "pop", "remove"}
        and code.name(node.func.value) == name
        for node in walk(loop)
    ):
        return None
    return f"{name} still holds it, {target.id} is only the loop's name for it: call {name}.clear()"


def _is_about_memory(document: Document, delete: ast.Delete, target: ast.Name) -> bool:
    """Return True if the deletion should free memory: by what follows, by a comment, or by the value."""
    code = document.code
    span = code.span(delete)
    lines = split_lines(document.sources.get(span.cell, ""))
    texts = [lines[number] for number in (span.line - 2, span.line - 1) if 0 <= number < len(lines)]
    comments = " ".join(text.partition("#")[2] for text in texts).lower()
    if any(word in comments for word in _FREEING_WORDS):
        return True
    if _is_followed_by_freeing(code, delete):
        return True
    return _is_model_output(code, delete, target)


def _is_followed_by_freeing(code: Code, delete: ast.Delete) -> bool:
    parent = code.parent(delete)
    blocks = [getattr(parent, name, None) for name in ("body", "orelse", "finalbody")]
    block = next((block for block in blocks if isinstance(block, list) and delete in block), [])
    following = block[block.index(delete) + 1 :][:3] if block else []
    if not following and isinstance(parent, (ast.For, ast.AsyncFor)):
        outer = code.parent(parent)
        body = getattr(outer, "body", [])
        following = body[body.index(parent) + 1 :][:2] if parent in body else []
    return any(
        isinstance(node, ast.Call) and code.call_name(node) in _FREEING
        for statement in following
        for node in walk(statement)
    )


def _is_model_output(code: Code, delete: ast.Delete, target: ast.Name) -> bool:
    assignment = last_assignment(code, target.id, delete)
    value = assignment.value if assignment else None
    while isinstance(value, ast.Call):
        if value in model_calls(code) or is_loss_function(code, value.func):
            return True
        value = value.func.value if isinstance(value.func, ast.Attribute) else None  # net(x).cpu()
    return False


def _is_end(code: Code, delete: ast.Delete) -> bool:
    """Return True if a function ends behind a deletion, at most with `return` of names."""
    function = code.function(delete)
    if function is None or delete not in function.body:
        return False
    rest = function.body[function.body.index(delete) + 1 :]
    if not rest:
        return True
    last = rest[0]
    return isinstance(last, ast.Return) and not any(isinstance(node, (ast.Call, ast.BinOp)) for node in walk(last))


def _is_collected(code: Code, delete: ast.Delete, assignment: Assignment) -> bool:
    """Return True if a loop puts the result of a call into a list and deletes its name at the end of the iteration."""
    loop = code.parent(delete)
    is_last = isinstance(loop, (ast.For, ast.AsyncFor, ast.While)) and delete in loop.body
    is_result = isinstance(assignment.value, ast.Call) and code.parent(assignment.statement) is loop
    return is_last and is_result


def _other_holder(document: Document, delete: ast.Delete, target: ast.Name) -> str | None:
    """Return the name, attribute or list that received the same object before, and keeps it."""
    code = document.code
    assignment = last_assignment(code, target.id, delete)
    if assignment is None:
        return None
    first = _line(assignment.statement)
    for holder, statement in _holders(code, target.id, delete, first):
        if not _is_released(code, holder, statement, delete):
            return code.source(holder)
    for optimizer, statement in _optimizers_of(document, target.id, delete):
        is_later = code.piece(statement) != code.piece(delete) and _is_replaced_later(code, optimizer, delete)
        if not is_later and not _is_released(code, optimizer, statement, delete):
            return f"{code.source(optimizer)} with the parameters"
    # A value that is itself another name: `result = out; del result` leaves out.
    value = assignment.value
    is_alias = isinstance(value, ast.Name) and assignment.kind == "=" and value.id not in model_names(code)
    if is_alias and value is not None and not _is_released(code, value, assignment.statement, delete):
        return code.source(value)
    return None


def _optimizers_of(document: Document, model: str, delete: ast.Delete) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Yield the optimizers in the same scope that hold the parameters of a model, with the place.

    The cells of a notebook run one after the other; the fences of a text may be alternatives.
    """
    code = document.code
    bindings = [item.statement for item in code.assignments(model, delete) if makes_other_object(code, item)]
    first = max((line for item in bindings if (line := _line(item)) < delete.lineno), default=0)
    for assign in code.nodes(ast.Assign):
        target = assign.targets[0]
        if not first <= assign.lineno <= delete.lineno or code.scope(assign) is not code.scope(delete):
            continue
        holds = isinstance(assign.value, ast.Call) and any(
            isinstance(node, ast.Attribute) and node.attr == "parameters" and code.name(node.value) == model
            for argument in assign.value.args
            for node in walk(argument)
        )
        is_before = document.kind is DocumentKind.NOTEBOOK or code.piece(assign) == code.piece(delete)
        if holds and is_optimizer(code, target) and is_before:
            yield target, assign


def _is_replaced_later(code: Code, holder: ast.expr, delete: ast.Delete) -> bool:
    """Return True if the other holder gets a new value behind the deletion, which frees the object then."""
    assignments = code.assignments(code.name(holder) or "", delete)
    return any(_line(item.statement) > delete.lineno and makes_other_object(code, item) for item in assignments)


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _holders(code: Code, name: str, delete: ast.Delete, first: int) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Yield what receives the object of a name between its assignment and its deletion, with the place."""
    scope = code.scope(delete)
    for assign in code.nodes(ast.Assign):
        is_same = isinstance(assign.value, ast.Name) and assign.value.id == name and len(assign.targets) == 1
        if (
            is_same
            and not _copies(assign.targets[0])
            and first <= assign.lineno < delete.lineno
            and code.scope(assign) is scope
        ):
            yield assign.targets[0], assign
    for call in code.nodes(ast.Call):
        func = call.func
        if first <= call.lineno < delete.lineno and isinstance(func, ast.Attribute) and func.attr == "append":
            is_same = len(call.args) == 1 and isinstance(call.args[0], ast.Name) and call.args[0].id == name
            if is_same and code.scope(call) is scope and not _is_local(code, func.value, delete):
                yield func.value, call


def _copies(target: ast.expr) -> bool:
    """Return True for a slice of an array, which receives the numbers and not the object."""
    return isinstance(target, ast.Subscript) and any(isinstance(node, ast.Slice) for node in walk(target.slice))


def _is_released(code: Code, holder: ast.expr, since: ast.AST, delete: ast.Delete) -> bool:
    """Return True if the other holder is deleted or gets another value around the deletion."""
    name = code.name(holder)
    if name is None:
        return not isinstance(holder, ast.Subscript)
    first = _line(since)
    # Both names are deleted, in any order.
    for other in code.nodes(ast.Delete):
        if code.scope(other) is code.scope(delete) and any(code.name(item) == name for item in other.targets):
            return True
    loop = next(code.loops_around(delete), None)
    return any(
        first < _line(assignment.statement) <= delete.lineno + 3
        for assignment in code.assignments(name, delete)
        if makes_other_object(code, assignment) and (loop is None or code.is_inside(assignment.statement, loop))
    )


def _is_local(code: Code, holder: ast.expr, delete: ast.Delete) -> bool:
    """Return True for a list that a later statement empties."""
    name = code.name(holder)
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "clear" and code.name(call.func.value) == name
        for call in code.nodes(ast.Call)
        if code.scope(call) is code.scope(delete)
    )


USELESS_DEL = Rule(
    "useless-del",
    RuleFamily.LEAKS,
    "A deletion frees nothing because something else holds the object",
    _check,
    triggers=("del ",),
)
