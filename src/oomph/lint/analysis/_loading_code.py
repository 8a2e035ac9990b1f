"""Code that runs for every sample: `__getitem__` of datasets, and the functions that it calls."""

from __future__ import annotations

import ast
import re

from ._calls import LocalCalls
from ._code import Code, Function, walk
from ._images import ImageFlow

_TRANSFORM = re.compile(r"Transform|Augment|Aug$|Views|Preprocess|Preproc")
_READER = re.compile(
    r"^_?(?:load|read|parse|decode|open|get|prepare|preprocess)(?:_(?:image|img|photo|jpe?g|picture|sample|example|frame|file|one|path)s?)*$"
)
_MAPPING = {"map", "with_transform", "set_transform"}


def dataset_classes(code: Code) -> list[ast.ClassDef]:
    """Return the classes with `__getitem__` that look like datasets: they have a length or a dataset as base."""
    return [owner for owner in code.nodes(ast.ClassDef) if getitem_of(owner) is not None and _is_dataset(code, owner)]


def getitem_of(owner: ast.ClassDef) -> Function | None:
    """Return the `__getitem__` of a class."""
    return method_of(owner, "__getitem__")


def method_of(owner: ast.ClassDef, name: str) -> Function | None:
    """Return a method of a class."""
    for item in owner.body:
        if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name:
            return item
    return None


def loading_functions(code: Code, calls: LocalCalls, images: ImageFlow) -> list[Function]:
    """Return the functions that run for every sample: `__getitem__`, `map` of a dataset, readers of all files."""
    waiting: list[Function] = []
    owners = {getitem_of(owner) for owner in dataset_classes(code)}
    for method in code.functions:
        # Fences often show the method alone.
        is_alone = method.name == "__getitem__" and code.class_of(method) is None
        owner = code.class_of(method)
        is_transform = method.name == "__call__" and owner is not None and _TRANSFORM.search(owner.name)
        # A snippet that shows only the function of one image.
        is_reader = owner is None and _READER.search(method.name) is not None and not calls.calls_of(method)
        if method in owners or is_alone or is_transform or is_reader:
            waiting.append(method)
    for call in code.nodes(ast.Call):
        waiting += _mapped(calls, call)
        function = calls.function(call)
        # Functions of a loop over all files that return something else, such as a prediction, load nothing.
        if function is not None and images.is_image(call) and _runs_for_all(code, images, call):
            waiting.append(function)
    known: dict[Function, None] = {}
    while waiting:
        function = waiting.pop()
        if function in known:
            continue
        known[function] = None
        for node in walk(function):
            called = calls.function(node) if isinstance(node, ast.Call) else None
            if called is not None and called.name not in {"__init__", "__len__"}:
                waiting.append(called)
    return list(known)


def _mapped(calls: LocalCalls, call: ast.Call) -> list[Function]:
    """Return the functions that a dataset applies to each sample: `dataset.map(f)`, `Images(transform=f)`."""
    functions = []
    if isinstance(call.func, ast.Attribute) and call.func.attr in _MAPPING and call.args:
        functions.append(calls.function(ast.Call(func=call.args[0], args=[], keywords=[])))
    functions += [
        calls.function(ast.Call(func=keyword.value, args=[], keywords=[]))
        for keyword in call.keywords
        if keyword.arg in {"transform", "collate_fn"}
    ]
    return [function for function in functions if function is not None]


def _runs_for_all(code: Code, images: ImageFlow, call: ast.Call) -> bool:
    """Return True if a call is in a loop or comprehension over all files."""
    for outer in code.ancestors(call):
        if isinstance(outer, (ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            if any(images.files.covers_all(generator.iter) for generator in outer.generators):
                return True
        elif isinstance(outer, ast.stmt):
            break
    return any(isinstance(loop, ast.For) and images.files.covers_all(loop.iter) for loop in code.loops_around(call))


def _is_dataset(code: Code, owner: ast.ClassDef) -> bool:
    if any("Dataset" in code.resolve(base) or "Sequence" in code.resolve(base) for base in owner.bases):
        return True
    if method_of(owner, "__len__") is not None:
        return True
    getitem = getitem_of(owner)  # `class Boxes(VOCDetection)` changes the samples of its base
    return getitem is not None and "super().__getitem__(" in ast.unparse(getitem)
