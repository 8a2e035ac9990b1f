"""Rule `loss-divided-twice`: the loss is divided by hand although a library divides it too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import (
    Code,
    EventKind,
    assigned_value,
    is_accelerator,
    last_assignment,
    last_part,
    passed_values,
    walk,
)
from ...sources import Document
from ._groups import find_groups
from ._loss_scale import LossScale, differentiated

_GROUP_NAME = re.compile(r"accum|grad_?acc|acc_?(?:steps|iter)|gas$", re.IGNORECASE)


def _check(document: Document) -> Iterator[Problem]:
    yield from _check_accelerate(document)
    yield from _check_deepspeed(document)
    yield from _check_lightning(document)
    yield from _check_transformers(document)
    yield from _check_guard(document)
    yield from _check_by_hand(document)


def _check_accelerate(document: Document) -> Iterator[Problem]:
    """Check losses that `accelerator.backward` divides by its `gradient_accumulation_steps`."""
    code = document.code
    for loop in document.loops:
        for event in loop.of(EventKind.BACKWARD):
            func = event.call.func
            receiver = func.value if isinstance(func, ast.Attribute) else None
            if not event.call.args or receiver is None or not is_accelerator(code, receiver):
                continue
            size = _accelerator_size(code, receiver)
            if (size is None and not _in_accumulate(code, event.call)) or code.constant(size) == 1:
                continue
            divider = f"{code.name(receiver)}.backward"
            yield from _divided(code, loop.node, differentiated(code, event), size, divider)


def _accelerator_size(code: Code, accelerator: ast.expr) -> ast.expr | None:
    """Return how many batches an Accelerator accumulates; of one that comes from elsewhere what the document says."""
    values = _values_at(code, accelerator)
    calls = [item for item in values if isinstance(item, ast.Call) and last_part(code.name(item.func)) == "Accelerator"]
    if not calls or any(item.arg is None for call in calls for item in call.keywords):
        size = _setting(code, "Accelerator", "gradient_accumulation_steps")
        return size if size is not None else _setting(code, "GradientAccumulationPlugin", "num_steps")
    for item in (item for call in calls for item in call.keywords):
        if item.arg == "gradient_accumulation_steps" and code.constant(item.value) != 1:
            return item.value
        if item.arg == "gradient_accumulation_plugin":
            return _setting(code, "GradientAccumulationPlugin", "num_steps")
    return None


def _values_at(code: Code, node: ast.expr, *, into_callers: bool = True) -> Iterator[ast.expr]:
    """Yield what a variable holds at a node: the last value before it, or what the calls of its function pass."""
    name = code.name(node)
    if name is None:
        return
    assignment = last_assignment(code, name, node) or next(iter(code.assignments(name, node)), None)
    if assignment is None:
        return
    if assignment.value is not None:
        yield assignment.value
    elif into_callers and assignment.kind == "argument" and isinstance(assignment.statement, ast.FunctionDef):
        for value in passed_values(code, assignment.statement, name):
            yield from _values_at(code, value, into_callers=False)


def _check_deepspeed(document: Document) -> Iterator[Problem]:
    """Check losses that an engine of DeepSpeed divides by the `gradient_accumulation_steps` of its configuration."""
    code = document.code
    setting = "gradient_accumulation_steps"
    sizes = [
        value
        for node in code.nodes(ast.Dict)
        for key, value in zip(node.keys, node.values, strict=True)
        if key is not None and code.constant(key) == setting
    ]
    for loop in document.loops:
        for event in loop.of(EventKind.BACKWARD):
            func = event.call.func
            if not isinstance(func, ast.Attribute) or not event.call.args or not _is_engine(code, func.value):
                continue
            size = sizes[0] if sizes else None
            if code.constant(size) == 1:
                continue
            yield from _divided(code, loop.node, differentiated(code, event), size, f"{code.name(func.value)}.backward")


def _is_engine(code: Code, node: ast.expr) -> bool:
    """Return True if a name holds the engine that `deepspeed.initialize` returns."""
    name = code.name(node)
    values = [assigned_value(item) for item in code.assignments(name, node)] if name is not None else []
    return any(code.call_name(value) == "deepspeed.initialize" for value in values)


def _check_lightning(document: Document) -> Iterator[Problem]:
    """Check losses that Lightning divides by `accumulate_grad_batches`."""
    code = document.code
    size = _setting(code, "Trainer", "accumulate_grad_batches")
    for owner in code.nodes(ast.ClassDef):
        bases = {last_part(code.name(base)) for base in owner.bases}
        if "LightningModule" not in bases or _is_manual(owner):
            continue
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "training_step":
                yield from _check_returns(code, method, size, "Lightning", "accumulate_grad_batches")


def _check_transformers(document: Document) -> Iterator[Problem]:
    """Check losses of a Trainer of transformers, which divides by `gradient_accumulation_steps`."""
    code = document.code
    size = _setting(code, "TrainingArguments", "gradient_accumulation_steps")
    for owner in code.nodes(ast.ClassDef):
        if not any(last_part(code.name(base)).endswith("Trainer") for base in owner.bases):
            continue
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name == "compute_loss":
                yield from _check_returns(code, method, size, "the Trainer", "gradient_accumulation_steps")


def _check_guard(document: Document) -> Iterator[Problem]:
    """Check losses of oomph's guard, which weights accumulated batches itself."""
    code = document.code
    guards = [call for call in code.nodes(ast.Call) if code.call_name(call) in {"oomph.guard", "oomph.Guard"}]
    accumulates = any(item.arg == "update" for call in code.nodes(ast.Call) for item in call.keywords)
    for guard in guards if accumulates else ():
        for item in guard.keywords:
            if item.arg not in {"loss", "forward"}:
                continue
            if isinstance(item.value, ast.Lambda):
                yield from _divided(code, item.value, item.value.body, None, "guard.step")
            name = code.name(item.value)
            for function in code.nodes(ast.FunctionDef):
                if function.name == name:
                    yield from _check_returns(code, function, None, "guard.step", "")


def _check_by_hand(document: Document) -> Iterator[Problem]:
    """Check losses that are divided by the size of their group in two places."""
    code = document.code
    for group in find_groups(document):
        every = group.accumulation.every
        if every is None:
            continue
        scale = LossScale(code, group.node, every)
        for event in group.loop.of(EventKind.BACKWARD):
            if event.helper is not None:
                continue
            same = [
                node for node, divisor in scale.divisions(differentiated(code, event)) if _is_same(code, divisor, every)
            ]
            if len(set(same)) > 1:
                message = f"the loss is divided by {code.source(every)} twice: `{code.source(same[0])}` and before"
                yield Problem(code.span(same[0]), message)


def _check_returns(
    code: Code, method: ast.FunctionDef, size: ast.expr | None, divider: str, setting: str
) -> Iterator[Problem]:
    for node in walk(method):
        if not isinstance(node, ast.Return) or node.value is None:
            continue
        for value in _returned(code, node.value):
            for problem_node, divisor in LossScale(code, method, size).divisions(value):
                is_setting = bool(setting) and last_part(code.name(divisor)) == setting
                is_known = size is not None or not setting
                if is_setting or (is_known and _is_size(code, divisor, size)):
                    yield _problem(code, problem_node, divisor, divider)


def _returned(code: Code, value: ast.expr) -> list[ast.expr]:
    """Return the losses in a returned value: itself, the first of a tuple, the value of "loss" in a dict."""
    if isinstance(value, ast.Tuple) and value.elts:
        return [value.elts[0]]
    if isinstance(value, ast.IfExp):
        return [*_returned(code, value.body), *_returned(code, value.orelse)]
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return [item for key, item in pairs if key is not None and code.constant(key) == "loss"]
    return [value]


def _divided(code: Code, region: ast.AST, loss: ast.expr, size: ast.expr | None, divider: str) -> Iterator[Problem]:
    for node, divisor in LossScale(code, region, size).divisions(loss):
        if _is_size(code, divisor, size):
            yield _problem(code, node, divisor, divider)


def _problem(code: Code, node: ast.AST, divisor: ast.expr, divider: str) -> Problem:
    message = (
        f"{divider} divides the loss by the number of accumulated batches already: remove the division by "
        f"{code.source(divisor)}"
    )
    return Problem(code.span(node), message)


def _is_size(code: Code, divisor: ast.expr, size: ast.expr | None) -> bool:
    """Return True if a divisor is the size of the group, by its name or value."""
    if size is not None and ast.dump(divisor) == ast.dump(size):
        return True
    if _GROUP_NAME.search(last_part(code.name(divisor))):
        return True
    number = code.constant(divisor)
    return isinstance(number, (int, float)) and number == code.constant(size)


def _is_same(code: Code, divisor: ast.expr, every: ast.expr) -> bool:
    """Return True if a divisor is the size of the group, by its name or value; 2 may be that of a mean of two."""
    number = code.constant(every)
    is_number = isinstance(number, int) and code.constant(divisor) == number and number not in {1, 2}
    return is_number or (not isinstance(every, ast.Constant) and ast.dump(divisor) == ast.dump(every))


def _setting(code: Code, function: str, argument: str) -> ast.expr | None:
    """Return the value of an argument in the calls of a class; None if no call sets it."""
    for call in code.nodes(ast.Call):
        if last_part(code.name(call.func)) == function:
            for item in call.keywords:
                if item.arg == argument and code.constant(item.value) != 1:
                    return item.value
    return None


def _in_accumulate(code: Code, node: ast.AST) -> bool:
    return any(
        isinstance(outer, ast.With)
        and any(last_part(code.call_name(item.context_expr)) == "accumulate" for item in outer.items)
        for outer in code.ancestors(node)
    )


def _is_manual(owner: ast.ClassDef) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == "automatic_optimization" for node in ast.walk(owner))


LOSS_DIVIDED_TWICE = Rule(
    "loss-divided-twice",
    RuleFamily.ACCUMULATION,
    "The loss is divided by hand although the library divides it too",
    _check,
    triggers=("backward", "training_step", "compute_loss", "guard"),
)
