"""Rule `half-with-scaler`: a gradient scaler for a model with float16 weights."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, is_optimizer, last_part
from ...sources import Document
from ._half_models import HalfModel, half_models, is_half_at, trained_names
from ._scaled_regions import ScaledRegion, scaled_regions


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    regions = list(scaled_regions(document))
    trainers = _half_trainers(code)
    if not regions and not trainers:
        return
    seen: set[ast.AST] = set()
    for model in half_models(document):
        if model.cast in seen:
            continue
        is_scaled = any(_trains(document, region, model) for region in regions)
        if is_scaled or any(is_half_at(document, model, call) for call in trainers.get(model.name, ())):
            seen.add(model.cast)
            message = (
                f"the weights of {model.name} are float16, whose gradients a GradScaler refuses to unscale: keep them "
                "in float32 and let autocast choose the types"
            )
            yield Problem(code.span(model.cast), message)


def _trains(document: Document, region: ScaledRegion, model: HalfModel) -> bool:
    """Return True if a region with a scaler trains the model."""
    code = document.code
    if not any(is_half_at(document, model, event.call) for event in region.events if event.scaler):
        return False
    optimizers = [call for call in code.nodes(ast.Call) if _builds_optimizer(code, call)]
    known = [names for call in optimizers if (names := trained_names(code, call))]
    if known:
        return any(model.name in names for names in known)
    calls = (node for node in ast.walk(region.node) if isinstance(node, ast.Call))
    return any(code.name(call.func) == model.name for call in calls)


def _builds_optimizer(code: Code, call: ast.Call) -> bool:
    parent = code.parent(call)
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return any(is_optimizer(code, target) for target in targets)


def _half_trainers(code: Code) -> dict[str, list[ast.Call]]:
    """Return the models of transformers' Trainers with `fp16=True`, which use a scaler too, with those calls."""
    is_half = any(
        item.arg == "fp16" and code.constant(item.value) is True
        for call in code.nodes(ast.Call)
        if last_part(code.name(call.func)).endswith("TrainingArguments")
        for item in call.keywords
    )
    if not is_half:
        return {}
    classes = {owner.name for owner in code.nodes(ast.ClassDef) if any(_is_trainer(code, base) for base in owner.bases)}
    trainers: dict[str, list[ast.Call]] = {}
    for call in code.nodes(ast.Call):
        if _is_trainer(code, call.func) or last_part(code.name(call.func)) in classes:
            models = [*call.args[:1], *(item.value for item in call.keywords if item.arg == "model")]
            for name in {code.name(model) for model in models} - {None}:
                trainers.setdefault(name or "", []).append(call)
    return trainers


def _is_trainer(code: Code, node: ast.expr) -> bool:
    return last_part(code.name(node)).endswith("Trainer")


HALF_WITH_SCALER = Rule(
    "half-with-scaler",
    RuleFamily.PRECISION,
    "A gradient scaler is used with float16 weights",
    _check,
    triggers=("half", "float16"),
)
