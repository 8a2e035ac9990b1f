"""Rule `float-on-host`: images become float32 on the host, four times the bytes of uint8."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, called_name, is_array_of_images, last_part, walk
from ...sources import Document
from ._sample_code import sample_regions, short_source

_FLOATS = {"float", "float32", "float64", "float_", "single", "double", "f4", "f8", "<f4"}
_CONVERTERS = {"float32", "float64", "FloatTensor", "img_as_float", "img_as_float32"}
_WHITE = {255, 256, 127.5}
# Images that a dataset keeps as an array: `self.images[i] / 255`.
_STORED = re.compile(r"^self\.\w*(?:image|img|frame|pixel|photo|tile|patch|pic)\w*$", re.IGNORECASE)
_ARRAY_MODULES = {"numpy", "torch"}
_EMPTY_ARRAYS = {"empty", "zeros", "ones"}
_SENT = {"to", "cuda"}


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    reported: set[int] = set()
    for region in sample_regions(document, only_kept=True):
        for node in walk(region):
            if isinstance(node, ast.expr) and node.lineno not in reported and _is_conversion(document, node):
                reported |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                yield _problem(code, node)
    expressions: list[ast.expr] = [*code.nodes(ast.BinOp), *code.nodes(ast.Call)]
    for node in expressions:
        if node.lineno not in reported and _is_converted_set(document, node):
            reported |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            yield _problem(code, node)
    for statement in code.nodes(ast.Assign):
        if statement.value.lineno not in reported and _is_filled(document, statement):
            yield _problem(code, statement.value)


def _is_filled(document: Document, statement: ast.Assign) -> bool:
    """Return True for `x = np.empty((n, 224, 224, 3), np.float32)` where a loop fills in images as they are."""
    code, call, name = document.code, statement.value, document.code.name(statement.targets[0])
    module, _, last = code.call_name(call).rpartition(".")
    if not isinstance(call, ast.Call) or name is None or module not in _ARRAY_MODULES or last not in _EMPTY_ARRAYS:
        return False
    types = [keyword.value for keyword in call.keywords if keyword.arg == "dtype"] or call.args[1:2]
    if not is_array_of_images(code, call) or (types and not _is_float(code, types[0])):
        return False
    return any(
        isinstance(other.targets[0], ast.Subscript)
        and code.name(other.targets[0].value) == name
        and code.scope(other) is code.scope(statement)
        and next(code.loops_around(other), None) is not None
        and document.images.is_image(other.value)
        and _comes_from_file(document, other.value)
        and not any(
            isinstance(part, ast.BinOp) or (isinstance(part, ast.expr) and _is_conversion(document, part))
            for value in (other.value, *code.values(other.value))
            for part in walk(value)
        )
        for other in code.nodes(ast.Assign)
    )


def _problem(code: Code, node: ast.expr) -> Problem:
    message = (
        f"`{short_source(code, node)}` makes floats on the host, 4 times the bytes in RAM and on the way to the GPU: "
        "keep uint8, and convert the batch on the GPU"
    )
    return Problem(code.span(node), message)


def _is_conversion(document: Document, node: ast.expr) -> bool:
    """Return True if an expression turns one image into floats."""
    code, images = document.code, document.images
    if _divides_by_white(code, node):
        dividend = _dividend(node)
        if "tensorflow.cast" in {code.call_name(part) for part in walk(node)}:
            return False  # a function of tf.data, which runs in TensorFlow's graph
        return dividend is not None and not _is_on_device(code, dividend) and _is_pixels(document, dividend)
    source = _float_source(code, node)
    return source is not None and images.is_image(source) and _comes_from_file(document, source)


def _is_pixels(document: Document, node: ast.expr) -> bool:
    """Return True if a value that is divided by 255 is a whole image: read from a file, or converted to float here."""
    if document.images.is_image(node):
        return True
    if _float_source(document.code, node) is not None:
        return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Sub, ast.Add)):
        return _is_pixels(document, node.left)  # (x.astype("float32") - 127.5) / 127.5
    return isinstance(node, ast.Subscript) and _STORED.search(ast.unparse(node.value)) is not None


def _comes_from_file(document: Document, node: ast.expr) -> bool:
    """Return True if pixels come from an image file, whose values are uint8; arrays may have any type."""
    code, images = document.code, document.images
    waiting, seen = [node], set()
    while waiting:
        current = waiting.pop()
        for part in walk(current):
            if images.is_read(part):
                return True
            function = document.calls.function(part) if isinstance(part, ast.Call) else None
            values = document.calls.results(function) if function is not None else ()
            names = code.values(part) if isinstance(part, ast.Name) else []
            for value in (*values, *names):
                if value not in seen:
                    seen.add(value)
                    waiting.append(value)
    return False


def _is_converted_set(document: Document, node: ast.expr) -> bool:
    """Return True if an expression turns the array of all images into floats."""
    code, images = document.code, document.images
    if _divides_by_white(code, node):
        dividend = _dividend(node)
        source = _float_source(code, dividend) if dividend is not None else None
        return dividend is not None and (images.is_collection(dividend) or images.is_collection(source))
    source = _float_source(code, node)
    return source is not None and images.is_collection(source)


def _divides_by_white(code: Code, node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        value = code.constant(node.right)
        is_division = isinstance(node.op, ast.Div) and value in _WHITE
        factor = node.right
        is_factor = (
            isinstance(node.op, ast.Mult)
            and isinstance(factor, ast.BinOp)
            and isinstance(factor.op, ast.Div)
            and code.constant(factor.right) in _WHITE
        )
        return is_division or is_factor
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"div", "div_"}:
        return bool(node.args) and code.constant(node.args[0]) in _WHITE
    if isinstance(node, ast.Call) and last_part(code.call_name(node)) in {"divide", "true_divide"}:
        return len(node.args) > 1 and code.constant(node.args[1]) in _WHITE
    return False


def _dividend(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.BinOp):
        return node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.args[0] if node.func.attr in {"divide", "true_divide"} else node.func.value
    return None


def _float_source(code: Code, node: ast.expr) -> ast.expr | None:
    """Return what is converted by `x.astype(np.float32)`, `np.array(x, dtype=np.float32)`, `x.float()`."""
    if not isinstance(node, ast.Call):
        return None
    func = node.func
    last = called_name(node)
    if last == "astype" and isinstance(func, ast.Attribute):
        return func.value if node.args and _is_float(code, node.args[0]) else None
    if last in {"float", "double"} and isinstance(func, ast.Attribute) and not node.args:
        return func.value
    if last in {"to", "type"} and isinstance(func, ast.Attribute):
        return func.value if node.args and _is_float(code, node.args[0]) else None
    if last in {"array", "asarray", "tensor", "as_tensor"} and node.args:
        types = [keyword.value for keyword in node.keywords if keyword.arg == "dtype"] or node.args[1:2]
        return node.args[0] if types and _is_float(code, types[0]) else None
    if last in _CONVERTERS and len(node.args) == 1:
        return node.args[0]
    return None


def _is_float(code: Code, node: ast.expr) -> bool:
    value = code.constant(node)
    name = value if isinstance(value, str) else last_part(code.name(node))
    return name in _FLOATS


def _is_on_device(code: Code, node: ast.expr) -> bool:
    """Return True if a batch was sent to the GPU before: `x.to(device).float() / 255`."""
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and part.func.attr in _SENT
        and _float_source(code, part) is None
        for part in walk(node)
    )


FLOAT_ON_HOST = Rule(
    "float-on-host",
    RuleFamily.DATA,
    "Images become floats on the host",
    _check,
    triggers=("float", "np.zeros(", "np.empty(", "/ 255", "/255", "div(255", "127.5"),
)
