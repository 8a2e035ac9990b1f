"""The size of one sample, from what a document states or from constants in its transforms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ...analysis import Code, integer, last_part
from ...sources import Document

_BYTES = {
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "uint8": 1,
    "int8": 1,
    "float64": 8,
    "double": 8,
}
_TYPE = "|".join(sorted(_BYTES, key=len, reverse=True))
_SHAPE_PARTS = (
    r"(?<![\d.])\(?(\d{1,5})\s*(?:x|×|\*|,)\s*(\d{1,5})\s*(?:x|×|\*|,)\s*(\d{1,5})\)?(?![\d.])[^.\n]{0,30}?",
    rf"\b({_TYPE})\b",
)
_SHAPE = re.compile(
    "".join(_SHAPE_PARTS),
    re.IGNORECASE,
)
_TYPE_FIRST = re.compile(
    rf"\b({_TYPE})\b[^.\n]{{0,20}}?\(?(\d{{1,5}})\s*(?:x|×|,)\s*(\d{{1,5}})\s*(?:x|×|,)\s*(\d{{1,5}})\)?", re.IGNORECASE
)
_STATED_PARTS = (
    r"(?:sample|image|tile|frame|item|photo|scan|clip|one|each|volume|slice|picture|crop|patch)s?\b[^.\n]{0,60}?",
    r"(?<![\d.])(\d+(?:\.\d+)?)\s*(MB|MiB)\b",
)
_STATED = re.compile(
    "".join(_STATED_PARTS),
    re.IGNORECASE,
)
_PER_SAMPLE = re.compile(
    r"(?<![\d.])(\d+(?:\.\d+)?)\s*(MB|MiB)\s*(?:each\b|(?:per|an?|/)\s*(?:image|sample|tile|frame|item|photo|picture|scan|crop))",
    re.IGNORECASE,
)
_UNITS = {"mb": 10**6, "mib": 2**20}
_CROPS = {"RandomCrop", "CenterCrop", "RandomResizedCrop", "Resize", "LongestMaxSize", "PadIfNeeded"}
_FLOAT_TRANSFORMS = {"ToTensor", "Normalize", "ConvertImageDtype", "ToDtype", "ToTensorV2"}
_MAX_CHANNELS = 16
_MIN_SIDE = 32


def sample_bytes(document: Document) -> int | None:
    """Return the bytes of one sample; None if the document doesn't show them."""
    sizes = [*_sizes_in_code(document), *_sizes_in_text(document.text)]
    # Where several are stated, the smallest reports nothing that the others wouldn't.
    return min(sizes, default=None)


def _sizes_in_text(text: str) -> Iterator[int]:
    shapes = [(match.group(1, 2, 3), match[4]) for match in _SHAPE.finditer(text)]
    shapes += [(match.group(2, 3, 4), match[1]) for match in _TYPE_FIRST.finditer(text)]
    sizes: dict[int, int] = {}
    for sides, kind in shapes:
        channels, smaller, larger = sorted(map(int, sides))
        if 0 < channels <= _MAX_CHANNELS and smaller >= _MIN_SIDE:
            pixels = channels * smaller * larger
            # The same image as uint8 and as float32: loaders get the larger one.
            sizes[pixels] = max(sizes.get(pixels, 0), pixels * _BYTES[kind.lower()])
    yield from sizes.values()
    if not sizes:
        for match in (*_STATED.finditer(text), *_PER_SAMPLE.finditer(text)):
            yield int(float(match[1]) * _UNITS[match[2].lower()])


def _sizes_in_code(document: Document) -> Iterator[int]:
    """Yield the sizes of tensors that datasets create, and of images after the last transform that sets their size."""
    code = document.code
    methods = {function for function in document.loading_functions if function.name == "__getitem__"}
    for call in code.nodes(ast.Call):
        last = last_part(code.call_name(call))
        if last in {"zeros", "rand", "randn", "empty", "ones"} and code.function(call) in methods:
            if (size := _tensor_size(code, call)) is not None:
                yield size
        elif last == "Compose":
            size = _pipeline_size(code, call)
            if size is not None:
                yield size


def _tensor_size(code: Code, call: ast.Call) -> int | None:
    sides = call.args[0].elts if call.args and isinstance(call.args[0], (ast.Tuple, ast.List)) else call.args
    numbers = [integer(code, side) for side in sides]
    if len(numbers) < 3 or None in numbers:  # noqa: PLR2004  channels, height, width
        return None
    total = 4 if code.call_name(call).startswith("torch") else 8
    for number in numbers:
        total *= number or 1
    types = [last_part(code.name(keyword.value)) for keyword in call.keywords if keyword.arg == "dtype"]
    return total * _BYTES.get(types[0], 4) // (4 if code.call_name(call).startswith("torch") else 8) if types else total


def _pipeline_size(code: Code, call: ast.Call) -> int | None:
    steps = call.args[0].elts if call.args and isinstance(call.args[0], (ast.List, ast.Tuple)) else []
    names = [last_part(code.call_name(step)) for step in steps]
    sized = [step for step, name in zip(steps, names, strict=True) if name in _CROPS and isinstance(step, ast.Call)]
    if not sized:
        return None
    sides = _sides(code, sized[-1])
    if sides is None:
        return None
    is_float = any(name in _FLOAT_TRANSFORMS for name in names)
    return 3 * sides[0] * sides[1] * (4 if is_float else 1)


def _sides(code: Code, step: ast.Call) -> tuple[int, int] | None:
    keywords = {keyword.arg: integer(code, keyword.value) for keyword in step.keywords}
    height, width = keywords.get("height"), keywords.get("width")
    if height and width:
        return height, width
    if not step.args:
        return None
    argument = step.args[0]
    values = code.values(argument) if isinstance(argument, ast.Name) else [argument]
    value = values[0] if len(values) == 1 else argument
    if isinstance(value, (ast.Tuple, ast.List)):
        numbers = [integer(code, side) for side in value.elts]
    else:
        is_shorter_side = last_part(code.call_name(step)) == "Resize" and len(step.args) == 1
        number = integer(code, argument)
        second = integer(code, step.args[1]) if len(step.args) > 1 else number
        # A single number of Resize is the shorter side: at least a square.
        numbers = [number, number if is_shorter_side else second]
    if len(numbers) != 2 or None in numbers:  # noqa: PLR2004
        return None
    return numbers[0] or 0, numbers[1] or 0
