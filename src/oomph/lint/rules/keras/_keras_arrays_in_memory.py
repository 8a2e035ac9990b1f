"""Rule `keras-arrays-in-memory`: all images as one array, passed to fit()."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...sources import Document, split_lines

_KERAS = re.compile(r"keras|tensorflow|\btf\.", re.IGNORECASE)
_KERAS_ARGUMENTS = {"epochs", "batch_size", "validation_data", "validation_split", "callbacks"}
_SHAPE = re.compile(r"[(\[]\s*(\d[\d_' ]*),\s*(\d+),\s*(\d+),\s*([134])\s*[)\]]")
_MANY_VALUES = 200_000_000  # a third more than all of CIFAR-10
_IMAGE_FILE = re.compile(r"(?:^|[_/\b])(?:images?|imgs?|frames?|photos?|pixels)(?:$|[_.\d])", re.IGNORECASE)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    for call in code.nodes(ast.Call):
        func = call.func
        if not (isinstance(func, ast.Attribute) and func.attr == "fit"):
            continue
        names = {keyword.arg for keyword in call.keywords}
        if not (names & _KERAS_ARGUMENTS or _KERAS.search(document.text)):
            continue
        inputs = call.args[:1] + [keyword.value for keyword in call.keywords if keyword.arg == "x"]
        inputs = [_augmented(item) for item in inputs]
        if inputs and (_is_array_of_images(document, call, inputs[0])):
            message = (
                f"`{code.source(inputs[0])}` holds all images in RAM, and fit() copies it: read batches in a "
                "keras.utils.PyDataset or a tf.data.Dataset"
            )
            yield Problem(code.span(call), message)


def _is_array_of_images(document: Document, call: ast.Call, node: ast.expr) -> bool:
    """Return True if an array holds all images: by where it comes from, or by a comment that states its shape."""
    if document.images.is_collection(node) or _is_loaded_array(document, node):
        return True
    name = document.code.name(node)
    statements = [item.statement for item in document.code.assignments(name, node)] if name is not None else []
    return any(_states_shape(document, item) for item in (call, *statements))


def _states_shape(document: Document, node: ast.AST) -> bool:
    """Return True if the comment of a line states the shape of many large images: `# (60000, 224, 224, 3)`."""
    span = document.code.span(node)
    lines = split_lines(document.sources.get(span.cell, ""))
    comments = (lines[number - 1].partition("#")[2] for number in {span.line, span.end_line} if number <= len(lines))
    for comment in comments:
        for shape in _SHAPE.findall(comment):
            if math.prod(int(re.sub(r"\D", "", side)) for side in shape) >= _MANY_VALUES:
                return True
    return False


def _augmented(node: ast.expr) -> ast.expr:
    """Return the array of `generator.flow(images, labels)`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "flow" and node.args:
        return node.args[0]
    return node


def _is_loaded_array(document: Document, node: ast.expr) -> bool:
    """Return True for an array of images from one file: `images = np.load("images.npy")`."""
    code = document.code
    for value in code.values(node):
        if document.images.is_array_read(value) and isinstance(value, ast.Call) and value.args:
            path = code.constant(value.args[0])
            is_mapped = any(keyword.arg == "mmap_mode" for keyword in value.keywords)
            words = f"{code.name(node)}.{path if isinstance(path, str) else ''}"
            if not is_mapped and _IMAGE_FILE.search(words):
                return True
    return False


KERAS_ARRAYS_IN_MEMORY = Rule(
    "keras-arrays-in-memory",
    RuleFamily.KERAS,
    "All images are passed to fit() as one array",
    _check,
    triggers=(".fit(",),
)
