"""Rule `fp16-adam-eps`: Adam on float16 weights with an eps that is 0 in float16."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, EventKind, last_assignment, last_part, walk
from ...sources import Document
from ._half_models import HalfModel, half_models, is_half_at, trained_names

_OPTIMIZERS = {"Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adamax"}
_SMALLEST = 2.0**-24  # the smallest positive float16
_DEFAULT = 1e-8
_EPS_POSITION = 3  # after the parameters, the rate and the betas


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    optimizers = [call for call in code.nodes(ast.Call) if _is_adam(code, call) and _eps(code, call) < _SMALLEST]
    if not optimizers:
        return
    models = list(half_models(document))
    for call in optimizers:
        names = trained_names(code, call)
        for model in models:
            if model.name in names and _is_trained(document, model, call):
                eps = _eps(code, call)
                message = (
                    f"eps={eps:g} is 0 in float16, the type of {model.name}'s weights, and divisions by 0 give NaN: "
                    "keep the weights in float32 and use autocast, or set eps=1e-4"
                )
                yield Problem(code.span(call), message)
                break


def _is_trained(document: Document, model: HalfModel, optimizer: ast.Call) -> bool:
    """Return True if an optimizer updates the model's float16 weights.

    A cast behind the optimizer counts if it is used after that: `half()` changes the same parameters in place.
    """
    uses = (optimizer, *_uses(document, optimizer))
    return any(is_half_at(document, model, node) for node in uses)


def _uses(document: Document, optimizer: ast.Call) -> Iterator[ast.AST]:
    """Yield the steps of an optimizer, and where it is passed or returned to code that may step it."""
    code = document.code
    parent = code.parent(optimizer)
    name = code.name(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    if name is None:
        return
    steps = [event.call for loop in document.loops for event in loop.of(EventKind.STEP) if event.subject == name]
    passed = [call for call in code.nodes(ast.Call) if _passes(code, call, name)]
    returned = [node for node in code.nodes(ast.Return) if any(code.name(part) == name for part in walk(node))]
    for node in (*steps, *passed, *returned):
        binding = last_assignment(code, name, node)
        if binding is not None and binding.value is optimizer:
            yield node


def _passes(code: Code, call: ast.Call, name: str) -> bool:
    """Return True if a function other than torch's, such as a scheduler's, gets a variable."""
    values = (*call.args, *(item.value for item in call.keywords))
    return any(code.name(value) == name for value in values) and not code.call_name(call).startswith("torch.")


def _is_adam(code: Code, call: ast.Call) -> bool:
    name = code.call_name(call)
    return last_part(name) in _OPTIMIZERS and name.startswith(("torch.optim.", *_OPTIMIZERS))


def _eps(code: Code, call: ast.Call) -> float:
    value = next((item.value for item in call.keywords if item.arg == "eps"), None)
    if value is None and len(call.args) > _EPS_POSITION:
        value = call.args[_EPS_POSITION]
    if value is None:
        return 1.0 if any(item.arg is None for item in call.keywords) else _DEFAULT
    number = code.constant(value)
    return float(number) if isinstance(number, (int, float)) else 1.0


FP16_ADAM_EPS = Rule(
    "fp16-adam-eps",
    RuleFamily.PRECISION,
    "Adam's eps is 0 in float16",
    _check,
    triggers=("Adam", "RMSprop", "NAdam", "RAdam"),
)
