"""Scales of a loss: whether it is divided by the size of its group before backward, and where."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from ...analysis import (
    Code,
    Event,
    EventKind,
    Function,
    are_exclusive,
    criterion_names,
    default_value,
    events_in,
    is_loss,
    is_model,
    last_part,
    model_calls,
    passed_values,
)

_GROUP_NAME = re.compile(r"accum|grad_?acc|acc_?(?:steps|iter|grad)|micro|n_?chunks|num_?chunks|gas$", re.IGNORECASE)
_CRITERION = re.compile(
    r"(?:^|_)(?:loss|crit\w*|cross_entropy\w*|mse|bce|nll|ce|dice|l1|objective|huber)(?:$|_|\d)|[Ll]oss", re.IGNORECASE
)
_WRAPPERS = {"mean", "item", "to", "float", "squeeze", "contiguous", "double", "type", "requires_grad_"}
_TOTALS = {"sum", "stack", "cat", "add"}
_DIVISIONS = {"div", "div_", "divide", "true_divide", "divide_"}
_PRODUCTS = {"mul", "mul_", "multiply"}
_COUNTS = {"sum", "numel", "size", "nelement", "count_nonzero", "clamp", "max"}
_MAX_DEPTH = 6


def differentiated(code: Code, event: Event) -> ast.expr:
    """Return the expression whose gradient a backward event computes."""
    call = event.call
    if event.helper is not None:
        inner = (item for item in events_in(code, event.helper) if item.kind is EventKind.BACKWARD)
        call = next(inner).call
    func = call.func
    assert isinstance(func, ast.Attribute)  # noqa: S101  by its kind
    receiver = func.value
    if isinstance(receiver, ast.Call) and isinstance(receiver.func, ast.Attribute) and receiver.func.attr == "scale":
        return receiver.args[0] if receiver.args else receiver
    if call.args and code.name(receiver) is not None and not is_loss(code, receiver):
        return call.args[0]
    return receiver


class LossScale:
    """Divisions and factors of a loss, followed through the assignments of a region."""

    def __init__(self, code: Code, region: ast.AST, every: ast.expr | None) -> None:
        self._code = code
        self._region = region
        self._every = every
        self._size = _number(code, every)
        self.is_guess = False  # True if the last result rests on an unknown function
        self._seen: set[object] = set()  # names and statements that were followed already

    def is_scaled(self, node: ast.expr, depth: int = 0) -> bool:
        """Return True if a loss is scaled by something that can be the group's size, is a sum, or is unknown."""
        if depth == 0:
            self._seen.clear()
            self.is_guess = False
        if depth > _MAX_DEPTH:
            return True
        if isinstance(node, ast.BinOp):
            return self._is_scaled_operation(node, depth)
        if isinstance(node, ast.IfExp):
            return self.is_scaled(node.body, depth + 1) or self.is_scaled(node.orelse, depth + 1)
        if isinstance(node, ast.Call):
            return self._is_scaled_call(node, depth)
        if isinstance(node, ast.Attribute) and node.attr == "loss":
            return not self._is_plain_output(node.value)
        if isinstance(node, ast.Subscript):
            return not self._is_plain_output(node.value)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self._is_scaled_name(node, depth)
        return True

    def divisions(self, node: ast.expr) -> list[tuple[ast.AST, ast.expr]]:
        """Return the divisions that a loss went through, with their divisors."""
        return list(self._divisions(node, set()))

    def _divisions(self, node: ast.expr, seen: set[ast.AST]) -> Iterator[tuple[ast.AST, ast.expr]]:
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Div):
                yield node, node.right
            else:
                yield from self._divisions(node.right, seen)
            yield from self._divisions(node.left, seen)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _DIVISIONS and node.args:
                yield node, node.args[-1]
            yield from self._divisions(node.func.value, seen)
        elif isinstance(node, ast.Name):
            yield from self._assigned_divisions(node, seen)

    def _assigned_divisions(self, node: ast.Name, seen: set[ast.AST]) -> Iterator[tuple[ast.AST, ast.expr]]:
        for statement, value in self._assigned(node):
            is_before = _is_before(statement, node) and not are_exclusive(self._code, statement, node)
            if value is None or not is_before or statement in seen:
                continue
            seen.add(statement)
            if not isinstance(statement, ast.AugAssign):
                yield from self._divisions(value, seen)
            elif isinstance(statement.op, ast.Div):
                yield statement, value

    def is_group_size(self, node: ast.expr) -> bool:
        """Return True if a divisor is the size of the group, by its value or its name."""
        if self._every is not None and ast.dump(node) == ast.dump(self._every):
            return True
        size, value = self._size, self._code.constant(node)
        if isinstance(value, (int, float)):
            return isinstance(size, int) and value == size and not isinstance(value, bool)
        return _GROUP_NAME.search(last_part(self._code.name(node))) is not None

    def _may_be_group_size(self, node: ast.expr) -> bool:
        """Return True unless a divisor is known to be something else: another number, or a count of elements."""
        size, value = self._size, self._code.constant(node)
        if isinstance(value, (int, float)) and isinstance(size, int):
            return bool(value == size)
        if isinstance(node, ast.Call):
            return last_part(self._code.call_name(node)) not in _COUNTS and not (
                isinstance(node.func, ast.Attribute) and node.func.attr in _COUNTS
            )
        # A part of a batch is a count; a setting such as cfg["accum"] can be the size.
        is_setting = isinstance(node, ast.Subscript) and isinstance(self._code.constant(node.slice), str)
        return not isinstance(node, ast.Subscript) or is_setting

    def _may_be_share(self, node: ast.expr) -> bool:
        """Return True if a factor can be 1 / k."""
        size, value = self._size, self._code.constant(node)
        if isinstance(value, (int, float)):
            return value * size == 1 if isinstance(size, int) else 0 < value < 1
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, (ast.Div, ast.Pow))
        name = self._code.name(node)
        if name is None:
            return not isinstance(node, ast.Call) or not self._is_criterion(node)
        values = [value for value in self._code.values(node) if not isinstance(value, (ast.Name, ast.Attribute))]
        return not values or any(self._may_be_share(item) for item in values)

    def _is_scaled_operation(self, node: ast.BinOp, depth: int) -> bool:
        if _is_mean(self._code, node):
            return self.is_scaled(node.left, depth + 1)
        if isinstance(node.op, ast.Div):
            return self._may_be_group_size(node.right) or self.is_scaled(node.left, depth + 1)
        if isinstance(node.op, ast.Mult):
            sides = (node.left, node.right)
            losses = [side for side in sides if self._is_loss_like(side)]
            if any(side not in losses and self._may_be_share(side) for side in sides):
                return True
            return any(self.is_scaled(side, depth + 1) for side in losses)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            # A weight of one term is not that of the group.
            terms = [side for side in (node.left, node.right) if not _is_weighted(side)]
            return any(self.is_scaled(side, depth + 1) for side in terms)
        return True

    def _is_loss_like(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call):
            return self._is_criterion(node) or self._is_wrapper(node)
        return is_loss(self._code, node) or isinstance(node, ast.BinOp)

    def _is_wrapper(self, node: ast.Call) -> bool:
        return isinstance(node.func, ast.Attribute) and node.func.attr in _WRAPPERS | _TOTALS

    def _is_scaled_call(self, node: ast.Call, depth: int) -> bool:
        if not self._is_mean(node):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in _WRAPPERS | _TOTALS | _DIVISIONS | _PRODUCTS:
            return self._is_scaled_method(node, node.func, depth)
        if last_part(self._code.call_name(node)) == "sum" and node.args:
            return not (isinstance(node.args[0], ast.Call) and "loss" in ast.unparse(node.args[0]))
        if self._mentions_group(node):
            return True
        definition = self._definition(node)
        if definition is not None:
            return self._is_scaled_function(definition, depth)
        if self._is_criterion(node) or is_model(self._code, node.func) or node in model_calls(self._code):
            return False
        self.is_guess = True
        return self._may_know_size(node)

    def _is_scaled_method(self, node: ast.Call, func: ast.Attribute, depth: int) -> bool:
        """Return True if `loss.float()`, `losses.mean()` or `torch.mean(losses)` is scaled; a sum needs no scale."""
        is_function = self._code.resolve(func.value) == "torch" and bool(node.args)
        subject = node.args[0] if is_function else func.value
        if func.attr not in _WRAPPERS:
            return True
        if func.attr != "mean":
            return self.is_scaled(subject, depth + 1)
        return any(self._may_be_group_size(divisor) for _, divisor in self.divisions(subject))

    def _may_know_size(self, node: ast.Call) -> bool:
        """Return True if unknown code can know the size of the group; a number in this function it can't."""
        function = self._code.function(node)
        is_object = bool(self._code.values(node.func)) or isinstance(node.func, ast.Call)
        if not isinstance(self._every, (ast.Name, ast.Constant)) or is_object:
            return True
        if isinstance(self._every, ast.Name):
            scopes = [item.statement for item in self._code.assignments(self._every.id, self._every)]
            is_local = bool(scopes) and function is not None
            if not is_local or any(
                item is not function and self._code.function(item) is not function for item in scopes
            ):
                return True
        given = (*node.args, *(item.value for item in node.keywords))
        return not given or any(isinstance(value, (ast.Starred, ast.Lambda)) for value in given)

    def _is_criterion(self, node: ast.Call) -> bool:
        """Return True if a call computes a mean loss."""
        function = node.func
        if isinstance(function, ast.Call):
            return self._is_mean(function) and _CRITERION.search(last_part(self._code.call_name(function))) is not None
        values = [value for value in self._code.values(function) if isinstance(value, ast.Call)]
        if values:
            return all(self._is_mean(value) for value in values) and (
                any(_CRITERION.search(last_part(self._code.call_name(value))) for value in values)
                or _CRITERION.search(last_part(self._code.name(function))) is not None
            )
        name = self._code.name(function)
        return _CRITERION.search(last_part(name)) is not None or name in criterion_names(self._code)

    def _is_mean(self, call: ast.Call) -> bool:
        return all(item.arg != "reduction" or self._code.constant(item.value) == "mean" for item in call.keywords)

    def _is_plain_output(self, node: ast.expr) -> bool:
        """Return True if a node is the output of a model: `model(**batch)`, or a name that holds it."""
        calls = [node] if isinstance(node, ast.Call) else self._code.values(node)
        return bool(calls) and all(
            isinstance(call, ast.Call) and is_model(self._code, call.func) and not self._mentions_group(call)
            for call in calls
        )

    def _is_scaled_name(self, node: ast.expr, depth: int) -> bool:
        name = self._code.name(node)
        if name in self._seen:
            return False
        self._seen.add(name)
        assigned = list(self._assigned(node))
        return not assigned or self._is_any_scaled(name or "", assigned, depth)

    def _is_passed_scaled(self, function: Function, parameter: str, depth: int) -> bool:
        """Return True unless all calls of a function in this document pass a loss that isn't scaled."""
        values = passed_values(self._code, function, parameter)
        if not values or depth > 1:
            return True
        regions = ((self._code.function(value) or self._code.tree, value) for value in values)
        return any(LossScale(self._code, region, self._every).is_scaled(value) for region, value in regions)

    def _is_any_scaled(self, name: str, assigned: Sequence[tuple[ast.AST, ast.expr | None]], depth: int) -> bool:
        for statement, value in assigned:
            if isinstance(statement, ast.AugAssign):
                if isinstance(statement.op, (ast.Div, ast.Mult)):
                    return True
            elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if self._is_passed_scaled(statement, name, depth):
                    return True
            elif value is None:
                source = getattr(statement, "value", None)
                if not (isinstance(source, ast.Call) and not self._is_scaled_call(source, depth + 1)):
                    return True
            elif self.is_scaled(value, depth + 1):
                return True
        return False

    def _assigned(self, node: ast.expr) -> Iterator[tuple[ast.AST, ast.expr | None]]:
        """Yield the assignments in the region to a name; those of the whole scope if there are none."""
        name = self._code.name(node)
        if name is None:
            return
        assignments = [
            item for item in self._code.assignments(name, node) if item.kind in {"=", "+=", "argument", "for", "with"}
        ]
        inside = [item for item in assignments if self._code.is_inside(item.statement, self._region)]
        for item in inside or assignments:
            yield item.statement, item.value

    def _mentions_group(self, node: ast.AST) -> bool:
        names = (item for item in ast.walk(node) if isinstance(item, (ast.Name, ast.Attribute)))
        every = ast.dump(self._every) if isinstance(self._every, (ast.Name, ast.Attribute)) else None
        owner = ast.dump(self._every.value) if isinstance(self._every, ast.Attribute) else None
        given = [*node.args, *(item.value for item in node.keywords)] if isinstance(node, ast.Call) else []
        if any(ast.dump(value) == owner for value in given):
            return True  # the settings that hold the size
        return any(ast.dump(item) == every or _GROUP_NAME.search(last_part(self._code.name(item))) for item in names)

    def _definition(self, node: ast.Call) -> ast.FunctionDef | None:
        name = last_part(self._code.name(node.func))
        return next((item for item in self._code.nodes(ast.FunctionDef) if item.name == name), None)

    def _is_scaled_function(self, function: ast.FunctionDef, depth: int) -> bool:
        returns = [item.value for item in ast.walk(function) if isinstance(item, ast.Return) and item.value is not None]
        if self._mentions_group(function) or depth > 1 or len(returns) != 1:
            return True
        return LossScale(self._code, function, self._every).is_scaled(returns[0], depth + 1)


def _is_before(statement: ast.AST, node: ast.AST) -> bool:
    """Return True if a statement ends before a node, so that following names comes to an end."""
    return (getattr(statement, "end_lineno", 0) or 0) < getattr(node, "lineno", 0)


def _is_weighted(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _is_mean(code: Code, node: ast.BinOp) -> bool:
    """Return True for `(a + b) / 2`, the mean of its terms, and `0.5 * (a + b)`."""
    sides = [node.left, node.right] if isinstance(node.op, ast.Mult) else [node.left]
    terms = next((_terms(side) for side in sides if _terms(side) > 1), 0)
    numbers = [code.constant(side) for side in (node.left, node.right)]
    if not terms or not isinstance(node.op, (ast.Div, ast.Mult)):
        return False
    return (terms if isinstance(node.op, ast.Div) else 1 / terms) in numbers


def _terms(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _terms(node.left) + _terms(node.right)
    return 1


def _number(code: Code, every: ast.expr | None) -> int | None:
    """Return the size of a group: a constant, or the default of a parameter."""
    value = code.constant(every)
    function = code.function(every) if isinstance(every, ast.Name) else None
    if value is None and isinstance(every, ast.Name) and function is not None:
        value = code.constant(default_value(function, every.id))
    return value if isinstance(value, int) else None
