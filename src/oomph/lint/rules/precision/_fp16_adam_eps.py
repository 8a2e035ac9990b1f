"""Rule `fp16-adam-eps`: Adam on float16 weights with an eps that is 0 in float16."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, last_part
from ...sources import Document
from ._half_models import half_models, is_same_scope, trained_names

_OPTIMIZERS = {"Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adamax"}
_SMALLEST = 2.0**-24  # the smallest positive float16
_DEFAULT = 1e-8
_EPS_POSITION = 3  # after the parameters, the rate and the betas


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    optimizers = [call for call in code.nodes(ast.Call) if _is_adam(code, call) and _eps(code, call) < _SMALLEST]
    if not optimizers:
        return
    models = list(half_models(code))
    for call in optimizers:
        names = trained_names(code, call)
        for model in models:
            # A cast behind the optimizer counts too: it changes the same parameters in place.
            if model.name in names and is_same_scope(code, model, call):
                eps = _eps(code, call)
                message = (
                    f"eps={eps:g} is 0 in float16, the type of {model.name}'s weights, and divisions by 0 give NaN: "
                    "keep the weights in float32 and use autocast, or set eps=1e-4"
                )
                yield Problem(code.span(call), message)
                break


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
