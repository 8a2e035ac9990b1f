"""Rule `transform-per-item`: the pipeline of transforms is built anew for every sample."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, Function, called_name, walk
from ...sources import Document

_PIPELINES = {"Compose", "Sequential", "OneOf", "SomeOf", "ReplayCompose", "RandomApply", "RandomChoice", "AutoAugment"}
_MODULES = ("torchvision", "albumentations", "imgaug", "iaa", "kornia", "monai", "v2", "audiomentations", "torchaudio")


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    calls = [call for call in code.nodes(ast.Call) if _is_pipeline(code, call)]
    if not calls:
        return
    per_sample = set(document.loading_functions)
    makers = {function for call in calls if (function := code.function(call)) is not None and _is_returned(code, call)}
    calls += [
        call
        for call in code.nodes(ast.Call)
        if document.calls.function(call) in makers and not _is_cached(document, call)
    ]
    for call in calls:
        if _is_part(code, call) or not _runs_per_sample(document, call, per_sample):
            continue
        function = code.function(call)
        if function is not None and _depends_on_sample(code, call, function):
            continue
        place = "for every sample" if function is None or function.name != "__getitem__" else "in every `__getitem__`"
        message = (
            f"`{code.source(call.func)}(…)` is built anew {place}: build it once, in `__init__` or before the loop"
        )
        yield Problem(code.span(call), message)


def _is_pipeline(code: Code, call: ast.Call) -> bool:
    func = call.func
    last, name = called_name(call), code.resolve(func)
    if name.startswith("torchaudio.transforms."):
        return last[:1].isupper()  # each computes a window and a bank of filters
    if last not in _PIPELINES:
        return False
    if name == "torch.nn.Sequential":
        return any("transforms" in code.call_name(argument) for argument in call.args)
    return last == "Compose" or name.startswith(_MODULES) or "transforms" in name


def _is_part(code: Code, call: ast.Call) -> bool:
    """Return True if a pipeline is part of another one."""
    return any(isinstance(outer, ast.Call) and _is_pipeline(code, outer) for outer in code.ancestors(call))


def _runs_per_sample(document: Document, call: ast.Call, per_sample: set[Function]) -> bool:
    code = document.code
    for outer in code.ancestors(call):
        if isinstance(outer, ast.If) and any(isinstance(part, ast.Is) for part in ast.walk(outer.test)):
            return False
        if isinstance(outer, ast.Lambda):
            return False
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
    function = code.function(call)
    if function is not None and function in per_sample and not _is_returned(code, call):
        return True
    for loop in code.loops_around(call):
        reads = any(document.images.is_read(node) for node in walk(loop))
        if isinstance(loop, ast.For) and reads and document.images.files.covers_all(loop.iter):
            return function is not None or not _depends_on_loop(code, call, loop)
    return False


def _is_returned(code: Code, call: ast.Call) -> bool:
    """Return True if a function builds the pipeline for others: it returns it."""
    parent = code.parent(call)
    if isinstance(parent, ast.Return):
        return True
    function, name = code.function(call), code.name(parent.targets[0]) if isinstance(parent, ast.Assign) else None
    return name is not None and any(
        isinstance(node, ast.Return) and code.name(node.value) == name for node in walk(function or code.tree)
    )


def _is_cached(document: Document, call: ast.Call) -> bool:
    function = document.calls.function(call)
    return function is not None and any("cache" in ast.unparse(item) for item in function.decorator_list)


def _depends_on_sample(code: Code, node: ast.expr, function: Function) -> bool:
    """Return True if a pipeline uses values of the sample or random ones, which a pipeline built before can't know."""
    arguments = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args)} - {"self", "cls"}
    waiting, seen = [node], {node}
    while waiting:
        for part in ast.walk(waiting.pop()):
            if isinstance(part, ast.Call) and part is not node and not _is_transform(code, part):
                return True
            if not isinstance(part, ast.Name):
                continue
            local = [item for item in code.assignments(part.id, node) if code.function(item.statement) is function]
            if part.id in arguments or any(item.value is None or item.kind != "=" for item in local):
                return True
            for item in local:
                if item.value is not None and item.value not in seen and not code.is_inside(node, item.value):
                    seen.add(item.value)
                    waiting.append(item.value)
    return False


def _is_transform(code: Code, call: ast.Call) -> bool:
    """Return True if a call builds a transform: a class of a library of transforms, or any class by its name."""
    name = code.resolve(call.func)
    return name.startswith(_MODULES) or "transforms" in name or called_name(call)[:1].isupper()


def _depends_on_loop(code: Code, call: ast.Call, loop: ast.For) -> bool:
    names = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
    return any(
        code.is_inside(item.statement, loop) or item.statement is loop
        for name in names
        for item in code.assignments(name, call)
    )


TRANSFORM_PER_ITEM = Rule(
    "transform-per-item",
    RuleFamily.DATA,
    "The transforms are built anew for every sample",
    _check,
    triggers=(*_PIPELINES, "torchaudio"),
)
