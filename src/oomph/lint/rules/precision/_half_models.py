"""Models whose weights are float16, and the optimizers that train them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...analysis import (
    Code,
    Function,
    Scope,
    callers,
    is_no_grad,
    last_part,
    makes_other_object,
    passed_value,
    training_calls,
    walk,
)
from ...sources import Document, DocumentKind
from ._autocast import Precision, type_of

_CASTS = {"half", "to", "type", "astype"}
_WRAPPERS = {"compile", "DataParallel", "DistributedDataParallel", "DDP"}
_ADAPTERS = ("get_peft_model", "LoraConfig", "PeftModel", "prepare_model_for_kbit_training", "add_adapter")


@dataclass(frozen=True)
class HalfModel:
    """A model with float16 weights.

    Attributes:
        name: Its variable.
        cast: The call that makes its weights float16.
        scope: The function or module that it belongs to.
        place: Where the variable gets a float16 model: the cast, the call of a function that casts, or a function that
            receives it.
    """

    name: str
    cast: ast.Call
    scope: Scope
    place: ast.AST


def half_models(document: Document) -> Iterator[HalfModel]:
    """Yield the models that a statement without condition makes float16, and none makes float32 again."""
    code = document.code
    if any(name in code.aliases or _is_called(code, name) for name in _ADAPTERS):
        return  # the weights of adapters are float32
    for call in code.nodes(ast.Call):
        if not _is_half_cast(code, call) or _is_optional(code, call):
            continue
        for model in _named_models(code, call):
            yield model
            yield from _passed_on(document, model)


def _named_models(code: Code, call: ast.Call) -> Iterator[HalfModel]:
    """Yield the variables that hold the model of a cast, also those that get it from a function."""
    name = _model_name(code, call)
    if name is not None:
        if _is_restored(code, name, call):
            return
        yield HalfModel(name, call, code.scope(call), call)
    function = code.function(call)
    if function is None:
        return
    positions = {None} if name is None and isinstance(code.statement(call), ast.Return) else _returned(function, name)
    for assign in code.nodes(ast.Assign) if positions else ():
        if last_part(code.call_name(assign.value)) != function.name:
            continue
        for position in positions:
            target = code.name(_element(assign.targets[0], position))
            if target is not None:
                yield HalfModel(target, call, code.scope(assign), assign)


def _returned(function: Function, name: str | None) -> set[int | None]:
    """Return the places of a variable in the tuples that a function returns; None where it is returned alone."""
    values = [node.value for node in walk(function) if isinstance(node, ast.Return)]
    alone: set[int | None] = {None for value in values if isinstance(value, ast.Name) and value.id == name}
    return alone | {
        position
        for value in values
        if isinstance(value, ast.Tuple)
        for position, part in enumerate(value.elts)
        if isinstance(part, ast.Name) and part.id == name
    }


def _element(target: ast.expr, position: int | None) -> ast.expr | None:
    """Return what receives an element of a returned tuple, or the value itself."""
    if position is None:
        return target
    parts = target.elts if isinstance(target, ast.Tuple) else []
    return parts[position] if position < len(parts) else None


def _passed_on(document: Document, model: HalfModel) -> Iterator[HalfModel]:
    """Yield the parameters of functions that are called with the model."""
    code = document.code
    functions = {function.name: function for function in code.functions}
    for call in code.nodes(ast.Call):
        function = functions.get(last_part(code.name(call.func)))
        if function is None or not is_half_at(document, model, call):
            continue
        for argument in function.args.args:
            value = passed_value(code, function, call, argument.arg)
            if code.name(value) == model.name:
                yield HalfModel(argument.arg, model.cast, function, function)


def is_half_at(document: Document, model: HalfModel, node: ast.AST) -> bool:
    """Return True if the weights of a model are float16 when a node runs.

    The node comes after the cast, no other model has taken the variable since, and it is not in another fence of a text
    whose fences are alternatives.
    """
    code = document.code
    is_text = document.kind is DocumentKind.MARKDOWN
    if not _is_same_scope(code, model, node) or (is_text and _is_alternative(code, model, node)):
        return False
    if model.name.startswith("self.") and code.function(model.place) is not code.function(node):
        return _is_made_half(code, model)
    function = code.function(node)
    nodes: Sequence[ast.AST] = [node]
    if function is not None and code.scope(node) is not model.scope and not model.name.startswith("self."):
        nodes = callers(code, function)  # a variable of the module, used in a function
    return not nodes or any(_line(model.place) <= _line(item) and not _is_replaced(code, model, item) for item in nodes)


def _is_made_half(code: Code, model: HalfModel) -> bool:
    """Return True if the method with the cast makes the model, so that other methods use it after that."""
    function = code.function(model.place)
    if function is None or function.name == "__init__":
        return True
    bindings = (item for item in code.assignments(model.name, model.place) if makes_other_object(code, item))
    return any(code.is_inside(item.statement, function) for item in bindings)


def _is_replaced(code: Code, model: HalfModel, node: ast.AST) -> bool:
    """Return True if the variable gets another model between its cast and a node."""
    own = code.statement(model.place) if not isinstance(model.place, ast.Module) else model.place
    return any(
        item.statement is not own
        and _line(model.place) < _line(item.statement) <= _line(node)
        and makes_other_object(code, item)
        for item in code.assignments(model.name, model.place)
    )


def _is_alternative(code: Code, model: HalfModel, node: ast.AST) -> bool:
    """Return True if the fence of a cast is complete without that of a node: it trains or predicts itself."""
    piece = code.piece(model.cast)
    if code.piece(node) == piece:
        return False
    if any(code.piece(call) == piece for call in training_calls(code)):
        return True
    contexts = (item.context_expr for block in code.nodes(ast.With) for item in block.items)
    evals = (call for call in code.nodes(ast.Call) if isinstance(call.func, ast.Attribute) and call.func.attr == "eval")
    return any(code.piece(item) == piece for item in (*(item for item in contexts if is_no_grad(code, item)), *evals))


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def trained_names(code: Code, optimizer: ast.Call) -> set[str]:
    """Return the models whose `parameters()` an optimizer gets."""
    arguments = [*optimizer.args[:1], *(item.value for item in optimizer.keywords if item.arg == "params")]
    names = set()
    for argument in arguments:
        for value in (argument, *(code.values(argument) if isinstance(argument, ast.Name) else ())):
            for node in ast.walk(value):
                if isinstance(node, ast.Attribute) and node.attr in {"parameters", "named_parameters"}:
                    names.add(code.name(node.value) or "")
    return names - {""}


def _is_same_scope(code: Code, model: HalfModel, node: ast.AST) -> bool:
    """Return True if a name at a node is the same variable as that of the model."""
    if model.name.startswith("self."):
        return code.class_of(model.cast) is code.class_of(node)
    scope = code.scope(node)
    return scope is model.scope or (isinstance(model.scope, ast.Module) and not _rebinds(code, model.name, node))


def _rebinds(code: Code, name: str, node: ast.AST) -> bool:
    """Return True if a function has its own variable of that name."""
    scope = code.scope(node)
    return any(code.scope(item.statement) is scope or item.statement is scope for item in code.assignments(name, node))


def _is_half_cast(code: Code, call: ast.Call) -> bool:
    """Return True for `.half()`, `.to(torch.float16)` and `from_pretrained(…, torch_dtype=torch.float16)`."""
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr == "half":
        return not call.args and not call.keywords
    if func.attr in {"to", "type"}:
        values = [*call.args, *(item.value for item in call.keywords if item.arg == "dtype")]
        return any(type_of(code, value) is Precision.HALF for value in values)
    if func.attr in {"from_pretrained", "from_config"}:
        types = [item.value for item in call.keywords if item.arg in {"torch_dtype", "dtype"}]
        is_quantized = any((item.arg or "").startswith(("load_in", "quantization")) for item in call.keywords)
        return any(type_of(code, value) is Precision.HALF for value in types) and not is_quantized
    return False


def _model_name(code: Code, call: ast.Call) -> str | None:
    """Return the variable that holds the model after a cast: `net.half()` or `net = Net().cuda().half()`."""
    outer: ast.AST = call
    parent = code.parent(outer)
    while isinstance(parent, (ast.Attribute, ast.Call)) and not (
        isinstance(parent, ast.Call) and outer in parent.args and last_part(code.call_name(parent)) not in _WRAPPERS
    ):
        outer, parent = parent, code.parent(parent)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        return code.name(parent.targets[0])
    func = call.func
    is_statement = isinstance(parent, ast.Expr)
    node = func.value if isinstance(func, ast.Attribute) and is_statement else None
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return code.name(node)


def _is_optional(code: Code, call: ast.Call) -> bool:
    return any(isinstance(outer, (ast.If, ast.IfExp, ast.Lambda)) for outer in code.ancestors(call)) and not _is_main(
        code, call
    )


def _is_main(code: Code, call: ast.Call) -> bool:
    """Return True if the only condition around a call is that of the main module."""
    conditions = [outer for outer in code.ancestors(call) if isinstance(outer, (ast.If, ast.IfExp, ast.Lambda))]
    return all(isinstance(outer, ast.If) and "__name__" in ast.unparse(outer.test) for outer in conditions)


def _is_restored(code: Code, name: str, cast: ast.Call) -> bool:
    """Return True if later code makes the weights float32 again, or the same statement does."""
    for call in code.nodes(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr not in {"float", "bfloat16", "to"}:
            continue
        if call.lineno < cast.lineno or code.scope(call) is not code.scope(cast):
            continue
        is_cast = func.attr in {"float", "bfloat16"} and not call.args
        values = [*call.args, *(item.value for item in call.keywords if item.arg == "dtype")]
        is_cast = is_cast or (
            func.attr == "to" and any(code.resolve(value) in {"torch.float32", "torch.float"} for value in values)
        )
        if is_cast and (code.name(func.value) == name or any(node is cast for node in ast.walk(call))):
            return True
    return False


def _is_called(code: Code, name: str) -> bool:
    return any(last_part(code.name(call.func)) == name for call in code.nodes(ast.Call))
