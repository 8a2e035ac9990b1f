"""Rules `loss-keeps-graph` and `outputs-keep-graph`: losses or outputs are collected together with their graphs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ..._problem import Edit, Problem
from ..._rule import Rule, RuleFamily
from ...analysis import (
    Code,
    EventKind,
    Function,
    GraphValues,
    Loop,
    assigned_value,
    called_name,
    callers,
    events_in,
    gradients_are_off,
    is_loss,
    is_loss_function,
    item_source,
    last_assignment,
    makes_other_object,
    training_calls,
    training_regions,
    walk,
)
from ...sources import Document, DocumentKind
from ._evaluation import evaluation_loops, mode_before
from ._hooks import hook_outputs
from ._stores import Store, fills_tensor, find_stores, is_bounded, is_emptied, outlives

# Attributes that only a tensor has, not the tuple or output object of a model.
_TENSOR_ATTRIBUTES = {
    "argmax", "backward", "cpu", "data", "detach", "dim", "flatten", "float", "item", "max", "mean", "permute",
    "reshape", "shape", "sigmoid", "size", "softmax", "squeeze", "sum", "topk", "unsqueeze", "view",
}  # fmt: skip
_STEP_BASES = {"training_step": "LightningModule", "compute_loss": "Trainer"}


@dataclass(frozen=True)
class _Kept:
    """A store that keeps graphs: where, the loop whose iterations it outlives, and the tensors.

    A backward of the code or of a framework frees the activations, but not the graph.
    """

    store: Store
    tensors: tuple[ast.expr, ...]
    values: GraphValues
    is_framework_step: bool = False


def _check_losses(document: Document) -> Iterator[Problem]:
    code = document.code
    for kept in _kept_graphs(code, has_fragments=document.kind is DocumentKind.MARKDOWN):
        store = kept.store
        losses = [tensor for tensor in kept.tensors if _is_summed_loss(code, tensor, kept)]
        if not losses:
            continue
        verb = "add" if store.is_sum else "keep"
        message = (
            f"`{code.source(store.node)}` keeps the graph of every iteration alive: {verb} "
            f"{code.source(losses[0])}.item(), or .detach() to avoid waiting for the GPU"
        )
        edits = tuple(code.insert_after(loss, ".detach()") for loss in losses if _is_surely_tensor(code, loss, kept))
        yield Problem(code.span(store.node), message, edits if len(edits) == len(losses) else ())


def _check_outputs(document: Document) -> Iterator[Problem]:
    code = document.code
    for kept in _kept_graphs(code, has_fragments=document.kind is DocumentKind.MARKDOWN):
        store = kept.store
        if any(_is_summed_loss(code, tensor, kept) for tensor in kept.tensors):
            continue
        tensor = kept.tensors[0]
        is_trained = kept.values.backwards or kept.is_framework_step
        activations = "" if is_trained else " with all its activations"
        message = (
            f"`{code.source(store.node)}` keeps the graph of every iteration alive{activations}: keep "
            f"{code.source(tensor)}.detach()"
        )
        yield Problem(code.span(store.node), message, _output_edits(code, kept))
    for node, output in hook_outputs(code):
        message = (
            f"`{code.source(node)}` keeps the graph of every forward pass alive: keep {code.source(output)}.detach()"
        )
        yield Problem(code.span(node), message)


@lru_cache(maxsize=2)
def _kept_graphs(code: Code, *, has_fragments: bool) -> tuple[_Kept, ...]:
    """Return all stores that keep graphs; two rules report them. Fragments are parts of a loop that isn't shown."""
    steps = [function for function in code.functions if _is_framework_step(code, function)]
    if not (training_calls(code) or evaluation_loops(code) or steps):
        return ()
    stores = tuple(find_stores(code))
    return (
        *_kept_in_loops(code, stores),
        *_kept_by_steps(code, stores, has_fragments=has_fragments),
        *_kept_by_framework_steps(code, stores, steps),
        *_kept_in_comprehensions(code),
    )


def _is_framework_step(code: Code, function: Function) -> bool:
    """Return True for the method that returns the loss in a module of Lightning or a Trainer of transformers."""
    owner = code.class_of(function)
    base = _STEP_BASES.get(function.name)
    return owner is not None and base is not None and any(ast.unparse(item).endswith(base) for item in owner.bases)


def _kept_by_framework_steps(code: Code, stores: tuple[Store, ...], steps: list[Function]) -> Iterator[_Kept]:
    """Yield the stores in attributes of losses and outputs of a framework's step; the framework runs its backward."""
    for store in stores:
        function = code.function(store.node)
        if function is None or function not in steps or not store.root.startswith("self."):
            continue
        values = GraphValues(code, outputs=frozenset(_outputs(code, function)))
        returned = {
            code.name(value) or ""
            for node in walk(function)
            if isinstance(node, ast.Return) and node.value is not None
            for value in _alternatives(node.value)
        }
        parts = [*_operands(store.value), *(store.value.values if isinstance(store.value, ast.Dict) else ())]
        tensors = tuple(part for part in parts if code.name(part) in returned)
        if not tensors and not _is_emptied_by_step(code, store, function):
            tensors = tuple(values.tensors(store.value))
        if tensors:
            yield _Kept(store, tensors, values, is_framework_step=True)


def _outputs(code: Code, function: Function) -> Iterator[ast.Call]:
    """Yield the calls of a step that run the module itself, or a part of it whose result a loss function gets."""
    losses = [node for node in walk(function) if isinstance(node, ast.Call) and is_loss_function(code, node.func)]
    predictions = {code.name(_base(call.args[0])) for call in losses if call.args}
    for node in walk(function):
        if not isinstance(node, ast.Call):
            continue
        name, parent = code.name(node.func) or "", code.parent(node)
        is_prediction = isinstance(parent, ast.Assign) and code.name(parent.targets[0]) in predictions - {None}
        if name in {"self", "self.forward"} or (is_prediction and name.startswith("self.")):
            yield node


def _base(node: ast.expr) -> ast.expr:
    """Return `logits` of `logits.flatten(0, 1)[mask]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Attribute):
                break
            node = node.func.value
        else:
            node = node.value
    return node


def _is_emptied_by_step(code: Code, store: Store, function: Function) -> bool:
    """Return True if a step keeps only a limited number of values."""
    is_reset = any(
        code.is_inside(item.statement, function) and makes_other_object(code, item)
        for item in code.assignments(store.root, store.target)
    )
    return is_reset or is_bounded(code, store) or is_emptied(code, store.root, function)


def _alternatives(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the values of which one is the loss: of a dict or tuple, of `x if y else z`, and that of `loss / 4`."""
    if isinstance(node, ast.IfExp):
        yield from (*_alternatives(node.body), *_alternatives(node.orelse))
    elif isinstance(node, (ast.Dict, ast.Tuple)):
        yield from node.values if isinstance(node, ast.Dict) else node.elts
    else:
        yield node.left if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Mult)) else node


def _kept_in_comprehensions(code: Code) -> Iterator[_Kept]:
    """Yield lists of outputs or losses that a comprehension over batches collects."""
    values = GraphValues(code)
    evaluated = {
        item.node for item in evaluation_loops(code) if item.is_named or mode_before(code, item.node, item.model)
    }
    for node in code.nodes(ast.ListComp):
        element = node.elt
        is_step = isinstance(element, ast.Call) and _is_training_function(code, element)
        if not (node in evaluated or is_step) or not isinstance(code.statement(node), ast.Assign):
            continue
        tensors = tuple(values.tensors(element))
        if tensors:
            yield _Kept(Store(node, node, "", element, is_sum=False), tensors, values)


def _kept_by_steps(code: Code, stores: tuple[Store, ...], *, has_fragments: bool) -> Iterator[_Kept]:
    """Yield the stores of functions that run one step, and of fragments, which have no loop around them."""
    for store in stores:
        if next(code.loops_around(store.node), None) is not None:
            continue
        function = code.function(store.node)
        if (store.is_sum and gradients_are_off(code, store.node)) or (function is None and not has_fragments):
            continue
        calls = tuple(
            call
            for call in training_calls(code)
            if code.function(call) is function and next(code.loops_around(call), None) is None
        )
        if not calls or (function is not None and _is_local(code, store, function)):
            continue
        values = GraphValues(code, calls)
        tensors = tuple(values.tensors(store.value))
        if (
            tensors
            and (all(_is_loss(code, tensor, values) for tensor in tensors) or _is_repeated_step(code, store, function))
            and not _is_differentiated(code, store)
        ):
            yield _Kept(store, tensors, values)


def _is_repeated_step(code: Code, store: Store, function: Function | None) -> bool:
    """Return True if a function that runs repeatedly adds to an attribute or a global list that nothing empties."""
    if function is None or store.is_sum:
        return False
    is_attribute = store.root.startswith("self.")
    owner = code.class_of(function) if is_attribute else code.tree
    if owner is None or is_bounded(code, store) or is_emptied(code, store.root, owner):
        return False
    starts = [item for item in code.assignments(store.root, store.target) if item.kind == "="]
    places = [code.function(item.statement) for item in starts]
    names = {place.name if place is not None else "" for place in places}
    if names != ({"__init__"} if is_attribute else {""}) or (not is_attribute and len(starts) > 1):
        return False
    calls = callers(code, function)
    if not calls and is_attribute:  # a step that another file calls
        return any(event.kind is EventKind.STEP for event in events_in(code, function))
    return any(
        next(code.loops_around(call), None) is not None
        or any(isinstance(outer, (ast.ListComp, ast.GeneratorExp)) for outer in code.ancestors(call))
        for call in calls
    )


def _is_local(code: Code, store: Store, function: Function) -> bool:
    """Return True if what receives the value belongs to the function's call."""
    head = store.root.partition(".")[0]
    return any(
        code.is_inside(assignment.statement, function)
        for name in (store.root, head)
        for assignment in code.assignments(name, store.target)
        if assignment.kind in {"=", "for", "with"} and assignment.statement is not store.node
    )


def _kept_in_loops(code: Code, stores: tuple[Store, ...]) -> Iterator[_Kept]:
    regions: dict[Loop, GraphValues] = {}
    for store in stores:
        if (store.is_sum or fills_tensor(code, store)) and gradients_are_off(code, store.node):
            continue
        for loop in code.loops_around(store.node):
            if not outlives(code, store, loop):
                break
            if loop not in regions:
                regions[loop] = _graph_values(code, loop)
            values = regions[loop]
            if not (values.backwards or _is_evaluation(code, loop) or _calls_training(code, store, loop)):
                continue
            tensors = tuple(values.tensors(store.value))
            if tensors and _are_of_iteration(code, tensors, loop) and not _is_differentiated(code, store):
                yield _Kept(store, tensors, values)
                break


def _graph_values(code: Code, loop: Loop) -> GraphValues:
    """Return the values of a loop; a graph of gradients is there to be differentiated again."""
    calls = [call for call in training_calls(code) if code.is_inside(call, loop)]
    # A penalty that torch.autograd.grad computes is part of a loss whose backward ends the graph.
    backwards = [call for call in calls if code.call_name(call) != "torch.autograd.grad"]
    is_repeated = any(keyword.arg == "create_graph" for call in backwards or calls for keyword in call.keywords)
    return GraphValues(code, () if is_repeated else tuple(calls))


def _is_evaluation(code: Code, loop: Loop) -> bool:
    return any(
        evaluation.node is loop and (evaluation.is_named or mode_before(code, loop, evaluation.model))
        for evaluation in evaluation_loops(code)
    )


def _calls_training(code: Code, store: Store, loop: Loop) -> bool:
    """Return True if what is stored is the result of a function of the document that runs a backward."""
    values = [store.value, *(value for item in _operands(store.value) for value in code.values(item))]
    return any(
        isinstance(value, ast.Call) and _is_training_function(code, value) and code.is_inside(value, loop)
        for value in values
    )


def _operands(node: ast.expr) -> list[ast.expr]:
    return [*_operands(node.left), *_operands(node.right)] if isinstance(node, ast.BinOp) else [node]


def _is_training_function(code: Code, call: ast.Call) -> bool:
    return any(
        assignment.kind == "def" and assignment.statement in training_regions(code)
        for assignment in code.assignments(code.name(call.func) or "", call)
    )


def _are_of_iteration(code: Code, tensors: tuple[ast.expr, ...], loop: Loop) -> bool:
    """Return True if a tensor is computed anew in the loop, not once before it."""
    for tensor in tensors:
        node: ast.expr = tensor
        while isinstance(node, ast.Attribute) and not code.assignments(code.name(node) or "", node):
            node = node.value
        name = code.name(node)
        if name is None:
            return True
        assignment = last_assignment(code, name, node)
        if assignment is not None and code.is_inside(assignment.statement, loop):
            return True
    return False


def _is_differentiated(code: Code, store: Store) -> bool:
    """Return True if the sum or list takes part in a loss that is differentiated in the same function."""
    function, owner = code.function(store.node), code.class_of(store.node)
    is_attribute = store.root.startswith("self.") and owner is not None
    calls = [
        call
        for call in training_calls(code)
        if code.function(call) is function or (is_attribute and code.class_of(call) is owner)
    ]
    names: set[str] = set()
    pending = [name for call in calls for name in _names_in(code, call)]
    while pending:
        name = pending.pop()
        if name in names:
            continue
        names.add(name)
        for assignment in code.assignments(name, store.node):
            if assignment.kind in {"=", "+=", "for"} and (value := assigned_value(assignment)) is not None:
                pending += _names_in(code, value)
    return store.root in names


def _names_in(code: Code, node: ast.AST) -> list[str]:
    return [name for item in walk(node) if isinstance(item, (ast.Name, ast.Attribute)) and (name := code.name(item))]


def _is_summed_loss(code: Code, tensor: ast.expr, kept: _Kept) -> bool:
    """Return True for a loss, and for an error that is added up: `error += (model(x) - y).abs().sum()`."""
    is_number = isinstance(tensor, ast.Call) and called_name(tensor) in {"sum", "mean"}
    return (kept.store.is_sum and is_number) or _is_loss(code, tensor, kept.values)


def _is_loss(code: Code, tensor: ast.expr, values: GraphValues) -> bool:
    name = code.name(tensor)
    if isinstance(tensor, ast.Call):
        return is_loss_function(code, tensor.func) or _returns_loss(code, tensor)
    if name is None:
        return False
    if name in values.differentiated or is_loss(code, tensor):
        return True
    assignment = last_assignment(code, name, tensor)
    loop = assignment.statement if assignment else None
    if isinstance(loop, (ast.For, ast.AsyncFor)):
        source = item_source(loop.target, loop.iter, ast.Name(name))
        return source is not None and _is_loss(code, source, values)
    value = assigned_value(assignment) if assignment else None
    return isinstance(value, ast.Call) and (is_loss_function(code, value.func) or _is_training_function(code, value))


def _returns_loss(code: Code, call: ast.Call) -> bool:
    """Return True for `loss.mean()`, `sum(losses)` and calls of functions that train and return their loss."""
    arguments = [*call.args, *([call.func.value] if isinstance(call.func, ast.Attribute) else [])]
    if any(is_loss(code, argument) for argument in arguments):
        return True
    return _is_training_function(code, call)


def _is_surely_tensor(code: Code, loss: ast.expr, kept: _Kept) -> bool:
    name = code.name(loss)
    return name is not None and (name in kept.values.differentiated or _is_used_as_tensor(code, name, loss))


def _output_edits(code: Code, kept: _Kept) -> tuple[Edit, ...]:
    """Return the edits that detach; a model may return a tuple, so only where the code uses the value as a tensor."""
    names = [code.name(tensor) for tensor in kept.tensors]
    is_safe = all(
        name and _is_used_as_tensor(code, name, tensor) for name, tensor in zip(names, kept.tensors, strict=True)
    )
    return tuple(code.insert_after(tensor, ".detach()") for tensor in kept.tensors) if is_safe else ()


def _is_used_as_tensor(code: Code, name: str, node: ast.AST) -> bool:
    scope = code.scope(node)
    for attribute in code.nodes(ast.Attribute):
        if (
            attribute.attr in _TENSOR_ATTRIBUTES
            and code.name(attribute.value) == name
            and code.scope(attribute) is scope
        ):
            return True
    for call in code.nodes(ast.Call):
        is_first = bool(call.args) and code.name(call.args[0]) == name and code.scope(call) is scope
        if is_first and code.resolve(call.func).startswith("torch.nn.functional."):
            return True
    return False


LOSS_KEEPS_GRAPH = Rule(
    "loss-keeps-graph",
    RuleFamily.LEAKS,
    "Losses are added up or collected with their graphs",
    _check_losses,
    triggers=("loss", "backward", "criterion", "crit", "training_step", "compute_loss"),
    is_fixable=True,
)
OUTPUTS_KEEP_GRAPH = Rule(
    "outputs-keep-graph",
    RuleFamily.LEAKS,
    "Outputs of a model are collected with their graphs",
    _check_outputs,
    triggers=("append", "extend", "] =", "+=", "insert", "add(", "cat(", "stack(", "update(", " in "),
    is_fixable=True,
)
