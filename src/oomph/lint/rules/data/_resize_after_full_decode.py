"""Rule `resize-after-full-decode`: large JPEGs are decoded in full and then made small."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...analysis import Code, called_name, default_of, integer, last_part, walk
from ...sources import Document
from ._sample_code import sample_regions, short_source

_MAX_SIDE = 512  # photos of today's cameras are eight times as wide
# Only JPEG decoders can skip pixels.
_OTHER_FORMATS = re.compile(r"\.(?:png|bmp|tiff?|gif|ppm|dcm|webp|npy)\b", re.IGNORECASE)
_JPEG = re.compile(r"\.jpe?g\b", re.IGNORECASE)
_CONVERSIONS = {"cvtColor", "convert", "array", "asarray", "fromarray", "open", "imread", "cast", "convert_image_dtype"}
_TENSORFLOW_DECODERS = {"tensorflow.io.decode_jpeg", "tensorflow.image.decode_jpeg"}


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    if _OTHER_FORMATS.search(document.text) and not _JPEG.search(document.text):
        return
    reported: set[ast.Call] = set()
    for region in sample_regions(document):
        for node in walk(region):
            if not isinstance(node, ast.Call) or node in reported or not _is_resize(code, node):
                continue
            reported.add(node)
            read = _full_read(document, node)
            if read is not None:
                yield _problem(code, node, read)


def _problem(code: Code, node: ast.Call, read: ast.Call) -> Problem:
    name = code.call_name(read)
    if name.endswith("imread"):
        advice = "read it with cv2.IMREAD_REDUCED_COLOR_2, _4 or _8"
    elif name in _TENSORFLOW_DECODERS:
        advice = f"pass ratio=2, 4 or 8 to {last_part(name)}"
    else:
        advice = 'call draft("RGB", size) on the opened image first'
    message = (
        f"`{short_source(code, node)}` comes after every pixel of the file was decoded: {advice}, so that a JPEG is "
        "decoded at a fraction of its size"
    )
    return Problem(code.span(node), message)


def _is_resize(code: Code, call: ast.Call) -> bool:
    """Return True for a resize to a constant small size."""
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr not in {"resize", "thumbnail"}:
        return False
    takes_image = _takes_image(code, func)
    sizes = call.args[1:2] if takes_image else call.args[:1]
    sizes += [keyword.value for keyword in call.keywords if keyword.arg in {"size", "dsize"}]
    return bool(sizes) and _is_small(code, sizes[0])


def _takes_image(code: Code, func: ast.expr) -> bool:
    """Return True for functions whose first argument is the image: cv2.resize and those of torchvision."""
    name = code.resolve(func)
    return name in {"cv2.resize", "tensorflow.image.resize", "skimage.transform.resize"} or name.endswith(
        "transforms.functional.resize"
    )


def _is_small(code: Code, size: ast.expr) -> bool:
    values = code.values(size) if isinstance(size, (ast.Name, ast.Attribute)) else [size]
    if not values and isinstance(size, ast.Name):
        values = [default] if (default := _default(code, size)) is not None else []
    if len(values) == 1 and isinstance(values[0], ast.Name) and isinstance(size, ast.Attribute):
        default = _default(code, values[0])
        values = [default] if default is not None else values
    if len(values) != 1:
        return False
    sides = values[0].elts if isinstance(values[0], (ast.Tuple, ast.List)) else [size]
    numbers = [integer(code, side) for side in sides]
    return bool(numbers) and all(number is not None and 0 < number <= _MAX_SIDE for number in numbers)


def _default(code: Code, name: ast.Name) -> ast.expr | None:
    """Return the default of an argument, as in `def __init__(self, size=(224, 224))`."""
    for item in code.assignments(name.id, name):
        if item.kind == "argument" and isinstance(item.statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return default_of(item.statement, name.id)
    return None


def _full_read(document: Document, call: ast.Call) -> ast.Call | None:
    """Return the call that decodes the image in full, if nothing else needs all of its pixels."""
    code = document.code
    assert isinstance(call.func, ast.Attribute)  # noqa: S101  checked by _is_resize
    source = call.args[0] if _takes_image(code, call.func) and call.args else call.func.value
    is_thumbnail = call.func.attr == "thumbnail"
    names: set[str] = set()
    is_converted = False
    for _ in range(8):
        if code.call_name(source) in _TENSORFLOW_DECODERS and isinstance(source, ast.Call):
            is_reduced = any(keyword.arg == "ratio" for keyword in source.keywords)
            return None if is_reduced or _is_used(code, call, names) else source
        if document.images.is_read(source):
            if "torchvision" in code.call_name(source):
                return None  # has no reduced form
            assert isinstance(source, ast.Call)  # noqa: S101  by is_read
            is_lazy = is_thumbnail and not is_converted and not code.call_name(source).endswith("imread")
            return None if is_lazy or _is_reduced(source) or _is_used(code, call, names) else source
        if isinstance(source, ast.Call) and called_name(source) in _CONVERSIONS:
            is_converted = True
            is_method = isinstance(source.func, ast.Attribute) and source.func.attr == "convert"
            source = source.func.value if is_method else source.args[0] if source.args else source  # type: ignore[attr-defined]
        elif isinstance(source, ast.Subscript):
            is_flip = isinstance(source.slice, ast.Tuple) and "::-1" in ast.unparse(source.slice)
            if not is_flip:
                return None
            source = source.value
        elif isinstance(source, ast.Name):
            names.add(source.id)
            value = _value_before(code, source, call)
            if value is None:
                return None
            source = value
        else:
            return None
    return None


def _value_before(code: Code, name: ast.Name, call: ast.Call) -> ast.expr | None:
    """Return the last value of a name before the resize, or of a `with` block around it."""
    start = code.statement(call)
    values = [
        item
        for item in code.assignments(name.id, name)
        if item.kind in {"=", "with"}
        and item.value is not None
        and item.statement.lineno <= name.lineno  # type: ignore[attr-defined]
        and item.statement is not start
        and item.value.lineno < name.lineno + 1
        and not code.is_inside(name, item.value)
    ]
    return values[-1].value if values else None


def _is_used(code: Code, call: ast.Call, names: set[str]) -> bool:
    """Return True if the full image is used before the resize: its shape, a crop, its draft."""
    function = code.function(call)
    region: ast.AST = function if function is not None else code.tree
    for node in walk(region):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names):
            continue
        if node.lineno <= call.lineno and node.attr in {"shape", "size", "crop", "draft", "width", "height", "rotate"}:
            return True
    for node in walk(region):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in names:
            is_crop = ":" in ast.unparse(node.slice) and "::-1" not in ast.unparse(node.slice)
            if is_crop and node.lineno <= call.lineno:
                return True
    return False


def _is_reduced(read: ast.Call) -> bool:
    return any("REDUCED" in ast.unparse(argument) for argument in read.args[1:])


RESIZE_AFTER_FULL_DECODE = Rule(
    "resize-after-full-decode",
    RuleFamily.DATA,
    "Images are decoded in full and then made small",
    _check,
    triggers=("resize", "thumbnail"),
)
