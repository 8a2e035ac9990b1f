"""Rules `validation-with-grad` and `validation-without-eval`: a model is evaluated as if it were trained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, called_model, gradients_are_off, last_part
from ...sources import Document
from ._evaluation import (
    EvaluationLoop,
    evaluation_loops,
    has_evaluation_switch,
    is_class_switched,
    mode_before,
    mode_of_callers,
)
from ._phases import phase_loops

_FROZEN = re.compile(r"\.requires_grad_\(\s*False|\.requires_grad\s*=\s*False|\bfreeze\b")
# Layers whose training mode differs from their evaluation mode, and models of libraries, which have such layers.
_MODE_LAYERS_PARTS = (
    r"batch_?norm|dropout|drop_?path|resnet|efficientnet|mobilenet|\bvgg|densenet|\bvit_|swin|\btimm\b",
    r"hub\.load|torchvision import.*\bmodels\b|\bmodels\.\w+\(|InstanceNorm|nn\.(?:Multihead|Transformer)",
    r"from_pretrained|smp\.",
)
_MODE_LAYERS = re.compile("|".join(_MODE_LAYERS_PARTS), re.IGNORECASE)
_LOADED_FOR_EVALUATION = re.compile(r"from_pretrained|load_learner|jit\.load|pipeline\(")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def _check_grad(document: Document) -> Iterator[Problem]:
    code = document.code
    for loop in evaluation_loops(code):
        is_switched = mode_before(code, loop.call, loop.model) is True or is_class_switched(code, loop.call)
        if not (loop.is_named or is_switched) or gradients_are_off(code, loop.call) or _is_frozen(document, loop):
            continue
        if not (_is_repeated(loop) or is_switched):
            continue
        model = code.source(called_model(loop.call))
        message = (
            f"{model} runs here with gradients on, so that its activations stay in memory until "
            "the result is gone: put the code into `with torch.no_grad():`"
        )
        yield Problem(code.span(_place(loop)), message)
    for phase_loop, call in phase_loops(code):
        message = (
            f"{code.source(call.func)} runs with gradients on in the evaluation phase too: put the forward pass into "
            "`with torch.set_grad_enabled(...):` with the condition of the training phase"
        )
        yield Problem(code.span(phase_loop.iter), message)


def _check_mode(document: Document) -> Iterator[Problem]:
    code = document.code
    for loop in evaluation_loops(code):
        if not loop.is_named or not _is_repeated(loop) or loop.model == "self":
            continue
        if _is_evaluated(document, loop) or not _depends_on_mode(document, loop.model):
            continue
        message = (
            f"{loop.model} is evaluated in training mode: dropout drops values and batch norm uses and changes the "
            f"statistics of each batch: call {loop.model}.eval() before and {loop.model}.train() after it"
        )
        yield Problem(code.span(_place(loop)), message)


def _is_repeated(loop: EvaluationLoop) -> bool:
    """Return True for a loop or comprehension, False for a single call in a function or at the top level."""
    return isinstance(loop.node, (*_LOOPS, ast.expr))


def _place(loop: EvaluationLoop) -> ast.AST:
    """Return the node to report: what a loop iterates over, so that the problem is on its first line."""
    return loop.node.iter if isinstance(loop.node, (ast.For, ast.AsyncFor)) else loop.call


def _is_frozen(document: Document, loop: EvaluationLoop) -> bool:
    """Return True if the parameters of a model are switched off, or if it may have none."""
    name = re.escape(last_part(loop.model))
    if re.search(rf"{name}\.requires_grad_\(\s*False", document.text):
        return True
    frozen = re.search(
        rf"in {re.escape(loop.model)}\.parameters\(\):\s+\w+\.requires_grad(?:_\(|\s*=\s*)False", document.text
    )
    return frozen is not None or (_FROZEN.search(document.text) is not None and "backward" not in document.text)


def _is_evaluated(document: Document, loop: EvaluationLoop) -> bool:
    """Return True if a switch to evaluation is or may be before the loop."""
    code = document.code
    mode = mode_before(code, loop.node, loop.model)
    if mode is False and _measures_losses(document, loop):
        return True
    if mode is not None:
        # Where only the lack of a training says that it evaluates, train() may be meant, to update batch norm.
        return mode or loop.is_implied
    modes = list(mode_of_callers(code, loop.node, loop.model))
    if any(mode is True for mode in modes):
        return True
    return has_evaluation_switch(code, loop.node, loop.model)


def _measures_losses(document: Document, loop: EvaluationLoop) -> bool:
    """Return True where a model receives the targets too: torchvision's detectors give losses in training mode only."""
    code = document.code
    is_given_targets = len(loop.call.args) > 1 and "target" in (code.name(loop.call.args[1]) or "")
    return is_given_targets and "loss" in document.text


def _depends_on_mode(document: Document, model: str) -> bool:
    """Return False if the document shows the whole model and none of its layers has a mode."""
    text = document.text
    if _LOADED_FOR_EVALUATION.search(text) and ".train()" not in text:
        return False
    return _MODE_LAYERS.search(text) is not None or last_part(model) not in _shown_models(document.code)


def _shown_models(code: Code) -> set[str]:
    """Return the names that hold an instance of a class of the document, or of a module of torch."""
    classes = {owner.name for owner in code.nodes(ast.ClassDef)}
    names: set[str] = set()
    for assign in code.nodes(ast.Assign):
        value = assign.value
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and code.name(value.func) is None:
            value = value.func.value  # Net().to(device)
        maker = code.call_name(value)
        if maker in classes or maker.startswith("torch.nn."):
            names.update(last_part(code.name(target)) for target in assign.targets)
    return names


VALIDATION_WITH_GRAD = Rule(
    "validation-with-grad",
    RuleFamily.LEAKS,
    "A model is evaluated with gradients on",
    _check_grad,
    triggers=("eval", "val", "test", "predict", "infer", "argmax", ".train(", "load_state_dict"),
)
VALIDATION_WITHOUT_EVAL = Rule(
    "validation-without-eval",
    RuleFamily.LEAKS,
    "A model is evaluated in training mode",
    _check_mode,
    triggers=("eval", "val", "test", "predict", "infer", "argmax", ".train(", "load_state_dict", "no_grad"),
)
