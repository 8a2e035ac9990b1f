"""Stores: statements that keep a value beyond the iteration of a loop, such as a sum, a list or an attribute."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ...analysis import Assignment, Code, Loop, is_conditional, iterates_over_loader, walk

_ADDING_METHODS = {"append": 0, "extend": 0, "appendleft": 0, "add": 0, "insert": 1}
_JOINS = {"torch.cat", "torch.vstack", "torch.hstack", "torch.concat", "torch.concatenate"}
_CLEARING_METHODS = {"clear", "reset", "popleft", "pop"}


@dataclass(frozen=True)
class Store:
    """A statement that adds a value to something.

    Attributes:
        node: The assignment or call.
        target: What receives the value: `total`, `history["loss"]`, `self.outputs`.
        root: The name that must live for the value to be kept: `history`, `self.outputs`.
        value: What is added.
        is_sum: True if the value is added to a number or tensor, False if a container receives it.
    """

    node: ast.AST
    target: ast.expr
    root: str
    value: ast.expr
    is_sum: bool


def find_stores(code: Code) -> Iterator[Store]:
    """Yield all stores that are in a loop."""
    for augmented in code.nodes(ast.AugAssign):
        if isinstance(augmented.op, ast.Add) and (root := root_name(code, augmented.target)):
            is_list = isinstance(augmented.value, (ast.List, ast.Tuple, ast.ListComp))
            yield Store(augmented, augmented.target, root, augmented.value, not is_list)
    for call in code.nodes(ast.Call):
        if (store := _addition(code, call) or _update(code, call) or _merge(code, call)) is not None:
            yield store
    for assign in code.nodes(ast.Assign):
        if len(assign.targets) == 1 and (store := _assignment(code, assign, assign.targets[0])) is not None:
            yield store


def _addition(code: Code, call: ast.Call) -> Store | None:
    """Return the store of `list.append(value)`."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in _ADDING_METHODS:
        return None
    position = _ADDING_METHODS[func.attr]
    root = root_name(code, func.value)
    if root is None or len(call.args) != position + 1:
        return None
    # A meter's `add` may keep a number; `_update` looks into classes of the document.
    if func.attr == "add" and not any(code.call_name(value) == "set" for value in code.values(func.value)):
        return None
    return Store(call, func.value, root, call.args[position], is_sum=False)


def _merge(code: Code, call: ast.Call) -> Store | None:
    """Return the store of `bank.update({key: value …})`."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "update" or len(call.args) != 1:
        return None
    root = root_name(code, func.value)
    if root is None or not isinstance(call.args[0], (ast.Dict, ast.DictComp)):
        return None
    # Keys that are written in the code are the same in each iteration.
    is_new = isinstance(call.args[0], ast.DictComp) or any(
        key is not None and _changes(code, key, call) for key in call.args[0].keys
    )
    return Store(call, func.value, root, call.args[0], is_sum=False) if is_new else None


def _assignment(code: Code, assign: ast.Assign, target: ast.expr) -> Store | None:
    """Return the store of `total = total + value`, `all = torch.cat([all, value])` or `outputs[i] = value`."""
    root = root_name(code, target)
    if root is None:
        return None
    value = assign.value
    if isinstance(value, ast.IfExp):
        # `mean = loss if mean is None else 0.9 * mean + 0.1 * loss`
        value = value.orelse if isinstance(value.orelse, ast.BinOp) else value.body
    if isinstance(value, ast.BinOp):
        text = ast.dump(_loaded(target))
        operands = list(_operands(value))
        others = [operand for operand in operands if ast.dump(operand) != text]
        if len(others) < len(operands):
            is_list = any(isinstance(operand, (ast.List, ast.Tuple)) for operand in others)
            return Store(assign, target, root, ast.Tuple(others, ast.Load()), not is_list)
    if isinstance(value, ast.Call) and code.call_name(value) in _JOINS and value.args:
        parts = value.args[0].elts if isinstance(value.args[0], (ast.List, ast.Tuple)) else []
        text = ast.dump(_loaded(target))
        others = [part for part in parts if ast.dump(part) != text]
        if len(others) < len(parts):
            return Store(assign, target, root, ast.Tuple(others, ast.Load()), is_sum=False)
    if isinstance(target, ast.Subscript) and _changes(code, target.slice, assign):
        return Store(assign, target, root, value, is_sum=False)
    return None


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp):
        yield from _operands(node.left)
        yield from _operands(node.right)
    else:
        yield node


def _update(code: Code, call: ast.Call) -> Store | None:
    """Return the store of `meter.update(loss)` if the meter's class is in the document and keeps its argument."""
    func = call.func
    if not isinstance(func, ast.Attribute) or not call.args:
        return None
    root = code.name(func.value)
    classes = {code.call_name(value) for value in code.values(func.value)}
    for owner in code.nodes(ast.ClassDef) if root and classes else ():
        if owner.name not in classes:
            continue
        for method in owner.body:
            if not isinstance(method, ast.FunctionDef) or method.name != func.attr:
                continue
            parameters = [argument.arg for argument in method.args.args[1:]]
            given = zip(parameters, call.args, strict=False)
            kept = [value for name, value in given if _adds_up(method, name)]
            if kept:
                return Store(call, func.value, root or "", ast.Tuple(kept, ast.Load()), is_sum=False)
    return None


def _adds_up(method: ast.FunctionDef, name: str) -> bool:
    """Return True if a method adds an argument, as it is, to an attribute."""
    text = ast.unparse(method)
    if "item()" in text or "detach()" in text or "float(" in text:
        return False
    return any(
        isinstance(item, ast.Name) and item.id == name
        for node in walk(method)
        for value in _added(node)
        for item in (walk(value) if isinstance(node, ast.AugAssign) else _elements(value))
    )


def _added(node: ast.AST) -> list[ast.expr]:
    """Return what `self.sum += value` or `self.rows.append(value)` adds."""
    if isinstance(node, ast.AugAssign):
        return [node.value] if ast.unparse(node.target).startswith("self.") else []
    func = node.func if isinstance(node, ast.Call) else None
    is_append = isinstance(func, ast.Attribute) and func.attr == "append" and ast.unparse(func).startswith("self.")
    return list(node.args) if isinstance(node, ast.Call) and is_append else []


def _elements(node: ast.expr) -> list[ast.expr]:
    """Return the parts of a tuple, list or dict; another node itself."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return node.elts
    return node.values if isinstance(node, ast.Dict) else [node]


def _loaded(target: ast.expr) -> ast.expr:
    """Return a target as an expression that is read."""
    return ast.parse(ast.unparse(target), mode="eval").body


def _changes(code: Code, key: ast.expr, node: ast.AST) -> bool:
    """Return True if a key is different in each iteration: a loop's variable, a counter."""
    names = {item.id for item in walk(key) if isinstance(item, ast.Name)}
    if names & _batch_names(code, node):
        return True
    for loop in code.loops_around(node):
        if isinstance(loop, (ast.For, ast.AsyncFor)):
            # Only a counter has a new value in every iteration; a name of a layer comes again.
            counters = _counters(loop)
            if names & counters:
                return True
    return False


def _batch_names(code: Code, node: ast.AST) -> set[str]:
    """Return the names in the loops around a node that come from a batch, such as the ids of its samples."""
    names: set[str] = set()
    for loop in reversed(list(code.loops_around(node))):
        if not isinstance(loop, (ast.For, ast.AsyncFor)):
            continue
        sources = {item.id for item in walk(loop.iter) if isinstance(item, ast.Name)}
        if iterates_over_loader(code, loop) or sources & names:
            names |= {item.id for item in walk(loop.target) if isinstance(item, ast.Name)}
    return names


def _counters(loop: ast.For | ast.AsyncFor) -> set[str]:
    iterable = loop.iter
    is_call = isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name)
    function = (
        iterable.func.id if is_call and isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) else ""
    )
    if function == "enumerate" and isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name):
        return {loop.target.elts[0].id}
    if function in {"range", "trange"} and isinstance(loop.target, ast.Name):
        return {loop.target.id}
    return set()


def root_name(code: Code, node: ast.expr) -> str | None:
    """Return the name that holds a target: `history` of `history["loss"][0]`, `d` of `d.setdefault(k, [])`."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call):
            if not (isinstance(node.func, ast.Attribute) and node.func.attr in {"setdefault", "get"}):
                return None
            node = node.func.value
        else:
            node = node.value
    return code.name(node)


def outlives(code: Code, store: Store, loop: Loop) -> bool:
    """Return True if what receives the value isn't created anew or emptied in each iteration of a loop."""
    # The owner of an attribute may be created in the loop as well.
    owner, names = store.root, [store.root]
    while "." in owner:
        owner = owner.rpartition(".")[0]
        names.append(owner)
    for name in names:
        for assignment in code.assignments(name, store.target):
            statement = assignment.statement
            if assignment.kind in {"=", "for", "with"} and statement is not store.node:
                is_target = statement is loop and assignment.kind == "for"
                is_reset = code.is_inside(statement, loop) and not _is_reset_now_and_then(code, assignment, store, loop)
                if (is_reset or is_target) and not _is_subscript_only(statement, store):
                    return False
    return not is_bounded(code, store) and not is_emptied(code, store.root, loop)


def _is_reset_now_and_then(code: Code, assignment: Assignment, store: Store, loop: Loop) -> bool:
    """Return True for `if step % 100 == 0: total = 0.0` behind a sum, which keeps the graphs of up to 100 steps."""
    statement = assignment.statement
    is_zero = isinstance(assignment.value, ast.Constant) and store.is_sum
    return is_zero and is_conditional(code, statement, loop) and not is_conditional(code, store.node, loop)


def _is_subscript_only(statement: ast.AST, store: Store) -> bool:
    return isinstance(statement, ast.Assign) and isinstance(store.node, ast.Assign) and statement is store.node


def fills_tensor(code: Code, store: Store) -> bool:
    """Return True for `values[i] = value` where values is a tensor, which copies the numbers."""
    holder = store.target.value if isinstance(store.target, ast.Subscript) else None
    return holder is not None and any(code.call_name(value).startswith("torch.") for value in code.values(holder))


def is_bounded(code: Code, store: Store) -> bool:
    """Return True for a `deque(maxlen=…)`."""
    return any(
        isinstance(value, ast.Call)
        and code.call_name(value).endswith("deque")
        and any(keyword.arg == "maxlen" for keyword in value.keywords)
        for value in code.values(store.target)
    )


def is_emptied(code: Code, root: str, region: ast.AST) -> bool:
    """Return True if a loop or class empties a container."""
    is_class = isinstance(region, (ast.ClassDef, ast.Module))
    return any(_empties(code, node, root) for node in walk(region, into_functions=is_class))


def _empties(code: Code, node: ast.AST, root: str) -> bool:
    """Return True for `losses.clear()`, `del losses[:]` and `losses[:] = []`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in _CLEARING_METHODS and code.name(node.func.value) == root
    if isinstance(node, ast.Delete):
        return any(root_name(code, target) == root for target in node.targets)
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, (ast.Slice, ast.Constant))
        and root_name(code, target) == root
        and _is_fresh(node.value)
        for target in node.targets
    )


def _is_fresh(value: ast.expr) -> bool:
    """Return True for a new empty container or number."""
    return isinstance(value, ast.Constant) or (isinstance(value, (ast.List, ast.Dict)) and not ast.unparse(value)[1:-1])
