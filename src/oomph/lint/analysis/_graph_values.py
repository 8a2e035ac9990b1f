"""Values with an autograd graph: outputs of models and losses, followed through assignments and tensor operations."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ._assignments import Assignment
from ._code import Code, walk
from ._grad_mode import defined_decorator, is_no_grad
from ._items import item_source
from ._models import callers, criterion_names, model_calls, training_calls
from ._roles import last_part

_MAX_DEPTH = 10
# Methods and functions whose result is a tensor with the graph of its input.
_KEEPING = {
    "abs", "add", "bfloat16", "cat", "chunk", "clamp", "clone", "contiguous", "cos", "cpu", "cuda", "div", "double",
    "exp", "expand", "flatten", "float", "gather", "get", "half", "index_select", "items", "list", "log",
    "log_softmax", "logsigmoid", "masked_fill", "masked_select", "matmul", "mean", "mm", "mul", "neg", "norm",
    "normalize", "permute", "pow", "relu", "repeat", "reshape", "round", "rsqrt", "select", "sigmoid", "softmax",
    "split", "sqrt", "square", "squeeze", "stack", "std", "sub", "sum", "tanh", "to", "transpose", "tuple", "type",
    "unbind", "unsqueeze", "values", "var", "view", "vstack", "hstack", "concat", "interpolate", "upsample",
    "pairwise_distance", "cosine_similarity", "cdist",
}  # fmt: skip
_PLAIN_ATTRIBUTES = {
    "shape", "device", "dtype", "data", "grad", "ndim", "requires_grad", "size", "is_cuda", "names", "indices",
    "grad_fn", "metrics", "step", "item", "label_ids",
}  # fmt: skip
_LOSS_FUNCTION = re.compile(
    r"(?:^|_)(?:crit(?:erion)?|loss|loss_?fn|loss_?func\w*|objective|bce|ce|mse|nll|dice|ctc|triplet|focal)(?:$|_|\d)"
)
_LOSS_CALL = re.compile(r"^torch\.nn\.functional\.\w*(?:loss|cross_entropy)\w*$|Loss$|^torch\.nn\.functional\.kl_div$")
_HEAD = re.compile(r"(?:^|_)(?:head|proj|projector|projection|predictor|pool|neck|fc)\d?$")
_LIBRARY = re.compile(r"accelerator|fabric|engine|strategy|trainer|^self$|amp|^acc$", re.IGNORECASE)
_GRAD_OFF = re.compile(r"no_?grad|inference|set_grad_enabled|eval_mode|evaluating", re.IGNORECASE)


def gradients_are_off(code: Code, node: ast.AST) -> bool:
    """Return True if gradients are or may be off at a node: by a block, a decorator, its callers or a global switch."""
    function = None
    for outer in code.ancestors(node):
        if isinstance(outer, (ast.With, ast.AsyncWith)) and any(_may_be_off(code, item) for item in outer.items):
            return True
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if any(_decorates_without_grad(code, decorator) for decorator in outer.decorator_list):
                return True
            function = function or (outer if not isinstance(outer, ast.ClassDef) else None)
    if _has_switch(code, node):
        return True
    return function is not None and any(_is_in_block(code, call) for call in callers(code, function))


def _decorates_without_grad(code: Code, decorator: ast.expr) -> bool:
    """Return True if a decorator says that gradients are off, or its definition in the document does."""
    made = ast.unparse(decorator), *(ast.unparse(function) for function in defined_decorator(code, decorator))
    return any(_GRAD_OFF.search(text) for text in made)


def _is_in_block(code: Code, node: ast.AST) -> bool:
    """Return True if a call runs with gradients off by a block or decorator around it."""
    return any(
        (isinstance(outer, (ast.With, ast.AsyncWith)) and any(_may_be_off(code, item) for item in outer.items))
        or (
            isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef))
            and any(is_no_grad(code, decorator) for decorator in outer.decorator_list)
        )
        for outer in code.ancestors(node)
    )


def _may_be_off(code: Code, item: ast.withitem) -> bool:
    context = item.context_expr
    if _GRAD_OFF.search(ast.unparse(context)):
        return True
    return isinstance(context, ast.Name) and any(_GRAD_OFF.search(ast.unparse(value)) for value in code.values(context))


def _has_switch(code: Code, node: ast.AST) -> bool:
    """Return True if a statement such as `torch.set_grad_enabled(False)` comes first, here or at the top level.

    `stack.enter_context(torch.no_grad())` is such a statement, too.
    """
    scopes = {code.function(node), None}
    return any(code.function(statement) in scopes for statement in code.nodes(ast.Expr) if _is_switch(statement.value))


def _is_switch(value: ast.expr) -> bool:
    func = value.func if isinstance(value, ast.Call) else None
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    if name == "enter_context" and isinstance(value, ast.Call):
        return any(_GRAD_OFF.search(ast.unparse(argument)) for argument in value.args)
    return name == "set_grad_enabled"


@dataclass(frozen=True)
class GraphValues:
    """Answers which expressions hold a graph, in a region of which some losses are differentiated.

    Attributes:
        code: The code.
        backwards: The calls of backward in the region; a loss that one of them differentiates has a graph.
        outputs: Calls that run a model besides those that their names show.
    """

    code: Code
    backwards: tuple[ast.Call, ...] = ()
    outputs: frozenset[ast.Call] = frozenset()
    _names: dict[str, ast.Call] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for call in self.backwards:
            for operand in backward_operands(call):
                if name := self.code.name(operand):
                    self._names.setdefault(name, call)
                    for part in self._parts(operand, _MAX_DEPTH):
                        self._names.setdefault(part, call)

    @property
    def differentiated(self) -> frozenset[str]:
        """The names of losses that are differentiated, and of the losses that they are sums of."""
        return frozenset(self._names)

    def holds_graph(self, node: ast.expr, depth: int = _MAX_DEPTH) -> bool:
        """Return True if the value of an expression is, or contains, a tensor with a graph."""
        return next(self.tensors(node, depth), None) is not None

    def tensors(self, node: ast.expr, depth: int = _MAX_DEPTH) -> Iterator[ast.expr]:
        """Yield the parts of an expression that bring the graph: `loss` in `loss * n`."""
        if depth <= 0:
            return
        if isinstance(node, (ast.Name, ast.Attribute)):
            if self._name_holds_graph(node, depth):
                yield node
        elif isinstance(node, ast.Call):
            if self._call_holds_graph(node, depth):
                yield node
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
            yield from self._comprehension_tensors(node, depth)
        else:
            for part in _parts_of(node):
                yield from self.tensors(part, depth - 1)

    def _comprehension_tensors(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, depth: int
    ) -> Iterator[ast.expr]:
        element = node.value if isinstance(node, ast.DictComp) else node.elt
        base = element
        while isinstance(base, (ast.Call, ast.Attribute, ast.Subscript)):
            if isinstance(base, ast.Call):
                func = base.func
                if not (isinstance(func, ast.Attribute) and func.attr in _KEEPING):
                    break
                base = func.value
            else:
                base = base.value
        for generator in node.generators:
            source = item_source(generator.target, generator.iter, base)
            if source is not None:
                if self.holds_graph(source, depth - 1):
                    yield source
                return
        yield from self.tensors(element, depth - 1)

    def _name_holds_graph(self, node: ast.Name | ast.Attribute, depth: int) -> bool:
        name = self.code.name(node)
        if name is None:
            value = node.value if isinstance(node, ast.Attribute) and node.attr not in _PLAIN_ATTRIBUTES else None
            return value is not None and self.holds_graph(value, depth - 1)
        assignment = last_assignment(self.code, name, node)
        backward = self._names.get(name)
        if backward is not None and (assignment is None or not _is_after(assignment.statement, backward, node)):
            return True
        if assignment is not None:
            return self._assignment_holds_graph(assignment, depth)
        if isinstance(node, ast.Attribute) and node.attr not in _PLAIN_ATTRIBUTES:
            return self.holds_graph(node.value, depth - 1)
        return False

    def _assignment_holds_graph(self, assignment: Assignment, depth: int) -> bool:
        value = assigned_value(assignment)
        if assignment.kind == "for" and isinstance(assignment.statement, (ast.For, ast.AsyncFor)):
            loop = assignment.statement
            name = ast.Name(assignment.name)
            source = item_source(loop.target, loop.iter, name)
            return source is not None and self.holds_graph(source, depth - 1)
        if value is None or assignment.kind not in {"=", "+="}:
            return False
        if assignment.value is None and not self._runs_model(value):
            return False  # `loss, items = compute_loss(…)`: which of them has a graph is unknown
        is_alias = isinstance(value, (ast.Name, ast.Attribute, ast.Subscript))
        if not is_alias and gradients_are_off(self.code, assignment.statement):
            return False
        return self.holds_graph(value, depth - 1)

    def _runs_model(self, value: ast.expr) -> bool:
        return value in model_calls(self.code) or value in self.outputs

    def _call_holds_graph(self, call: ast.Call, depth: int) -> bool:
        code = self.code
        if self._runs_model(call):
            return not gradients_are_off(code, call)
        func = call.func
        if isinstance(func, ast.Attribute) and code.name(func.value) is None:
            return func.attr in _KEEPING and self.holds_graph(func.value, depth - 1)
        full = code.resolve(func)
        last = last_part(code.name(func))
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        is_function = full.startswith("torch.") or full in {"sum", "list", "tuple"}
        if is_function and last in _KEEPING and not gradients_are_off(code, call):
            return any(self.holds_graph(argument, depth - 1) for argument in arguments)
        if is_loss_function(code, func) and not gradients_are_off(code, call):
            return any(self.holds_graph(argument, depth - 1) for argument in arguments)
        if isinstance(func, ast.Attribute) and last in _KEEPING and not is_function:
            return self.holds_graph(func.value, depth - 1)
        if isinstance(func, ast.Name) and _HEAD.search(func.id) and not gradients_are_off(code, call):
            return any(self.holds_graph(argument, depth - 1) for argument in call.args)
        return self._returned_graph(call, depth)

    def _returned_graph(self, call: ast.Call, depth: int) -> bool:
        """Return True if a call is that of a function of the document that returns a value with a graph."""
        name = self.code.name(call.func)
        if name is None or gradients_are_off(self.code, call):
            return False
        functions = [
            assignment.statement
            for assignment in self.code.assignments(name, call)
            if assignment.kind == "def" and isinstance(assignment.statement, ast.FunctionDef)
        ]
        if len(functions) != 1 or functions[0].decorator_list:
            return False
        function = functions[0]
        backwards = tuple(item for item in training_calls(self.code) if self.code.function(item) is function)
        values = GraphValues(self.code, backwards)
        return any(
            statement.value is not None
            and not isinstance(statement.value, (ast.Tuple, ast.Dict))
            and values.holds_graph(statement.value, depth - 3)
            for statement in self.code.nodes(ast.Return)
            if self.code.function(statement) is function
        )

    def _parts(self, node: ast.expr, depth: int) -> Iterator[str]:
        """Yield the names that a loss is a sum of: `loss = a + 0.1 * b` gives a and b."""
        if depth <= 0:
            return
        if isinstance(node, ast.BinOp):
            yield from self._parts(node.left, depth - 1)
            yield from self._parts(node.right, depth - 1)
            return
        name = self.code.name(node)
        if name is None:
            return
        for value in self.code.values(node):
            if (total := _summed(value)) is not None and (part := self.code.name(total)) and part != name:
                yield part  # the losses of `loss = sum(losses.values())`
            for operand, is_term in _terms(value) if isinstance(value, ast.BinOp) else ():
                part = self.code.name(operand)
                if part and part != name and self._is_part(operand, part, is_term=is_term):
                    yield part
                    yield from self._parts(operand, depth - 3)

    def _is_part(self, operand: ast.expr, name: str, *, is_term: bool) -> bool:
        """Return True if a name in a sum is a loss, not a weight or a number."""
        if "loss" in name.lower():
            return True
        values = self.code.values(operand)
        if is_term:
            return bool(values) and not any(isinstance(value, ast.Constant) for value in values)
        return any(isinstance(value, ast.Call) and is_loss_function(self.code, value.func) for value in values)


def _terms(node: ast.expr, *, is_term: bool = True) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the operands of an expression, with True for those that are added and False for factors."""
    if isinstance(node, ast.BinOp):
        is_sum = is_term and isinstance(node.op, (ast.Add, ast.Sub))
        yield from _terms(node.left, is_term=is_sum)
        yield from _terms(node.right, is_term=is_sum)
    else:
        yield node, is_term


def _summed(node: ast.expr) -> ast.expr | None:
    """Return `losses` of `sum(losses.values())` and `sum(losses)`."""
    is_sum = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sum"
    argument = node.args[0] if isinstance(node, ast.Call) and is_sum and node.args else None
    if isinstance(argument, ast.Call) and isinstance(argument.func, ast.Attribute) and argument.func.attr == "values":
        return argument.func.value
    return argument


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp):
        yield from _operands(node.left)
        yield from _operands(node.right)
    else:
        yield node


def _parts_of(node: ast.expr) -> list[ast.expr]:
    """Return the expressions whose tensors become part of the value."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [] if isinstance(node.op, ast.Not) else [node.operand]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return list(node.elts)
    if isinstance(node, ast.Dict):
        return list(node.values)
    if isinstance(node, (ast.Subscript, ast.Starred, ast.NamedExpr, ast.Await)):
        return [node.value]
    return []


def backward_operands(call: ast.Call) -> list[ast.expr]:
    """Return the losses of a backward: of `(loss / k).backward()`, `scaler.scale(loss).backward()` and the like."""
    func = call.func
    if not isinstance(func, ast.Attribute) or ast.unparse(func).endswith("autograd.backward"):
        return list(call.args[:1])
    receiver = func.value
    while isinstance(receiver, ast.Call):
        if receiver.args and isinstance(receiver.func, ast.Attribute) and receiver.func.attr == "scale":
            return list(_operands(receiver.args[0]))
        if isinstance(receiver.func, ast.Attribute):
            receiver = receiver.func.value  # loss.mean().backward()
        elif receiver.args:
            receiver = receiver.args[0]
        else:
            break
    operands = [operand for argument in call.args[:1] for operand in _operands(argument)]
    if operands and _LIBRARY.search(ast.unparse(receiver)):
        return operands  # accelerator.backward(loss)
    return [*operands, *_operands(receiver)]


def assigned_value(assignment: Assignment) -> ast.expr | None:
    """Return the value of an assignment; of `a, b = call()` the call."""
    if assignment.value is not None or assignment.kind != "=":
        return assignment.value
    value = getattr(assignment.statement, "value", None)
    return value if isinstance(value, ast.Call) else None


def last_assignment(code: Code, name: str, node: ast.AST) -> Assignment | None:
    """Return the last assignment to a name before a node, in source order; None if there is none."""
    position = _position(node)
    statement = code.statement(node)
    candidates = [
        assignment
        for assignment in code.assignments(name, node)
        if assignment.statement is not statement and _position(assignment.statement) < position
    ]
    return max(candidates, key=lambda assignment: _position(assignment.statement), default=None)


def makes_other_object(code: Code, assignment: Assignment) -> bool:
    """Return True if a name gets an object that isn't made of its former one, as in `net = net.cuda()`."""
    value = assignment.value or getattr(assignment.statement, "value", None)
    names = {code.name(item) for item in walk(value)} if isinstance(value, ast.expr) else set()
    return assignment.kind in {"=", "for", "with"} and assignment.name not in names


def is_loss_function(code: Code, func: ast.expr) -> bool:
    """Return True if a function computes a loss: `criterion`, `F.cross_entropy`, an instance of `nn.…Loss`."""
    if _LOSS_CALL.search(code.resolve(func)) or any(
        _LOSS_CALL.search(code.call_name(value)) for value in code.values(func)
    ):
        return True
    last = last_part(code.name(func))
    is_known = last in _loss_names(code) or code.name(func) in criterion_names(code)
    return is_known or _LOSS_FUNCTION.search(last) is not None


@lru_cache(maxsize=4)
def _loss_names(code: Code) -> frozenset[str]:
    """Return the names that hold an `nn.…Loss` anywhere, since a function may receive it as an argument."""
    return frozenset(
        last_part(code.name(target))
        for statement in code.nodes(ast.Assign)
        if _LOSS_CALL.search(code.call_name(statement.value))
        for target in statement.targets
        if code.name(target)
    )


def _is_after(statement: ast.AST, backward: ast.Call, node: ast.AST) -> bool:
    """Return True if a statement is between the backward and a later use."""
    return _position(backward) < _position(statement) < _position(node)


def _position(node: ast.AST) -> tuple[int, int]:
    return int(getattr(node, "lineno", 0)), int(getattr(node, "col_offset", 0))
