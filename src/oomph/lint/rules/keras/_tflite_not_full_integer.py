"""Rule `tflite-not-full-integer`: a conversion that is called full integer but quantizes only the weights."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..._problem import Problem, Span
from ..._rule import Rule, RuleFamily
from ...analysis import Code
from ...sources import Document, Line

_INTEGER = re.compile(
    r"full(?:y|[-_\s])*[-_\s]?(?:int(?:eger)?|quanti[sz]|int8)|integer[-_\s]only|u?int[-_]?8", re.IGNORECASE
)
_OTHER = re.compile(r"dynamic[-_\s]range|float[-_]?16|fp16|weights?[-_\s]only|16x8|hybrid", re.IGNORECASE)
_INTEGER_TYPE = re.compile(r"\bu?int8\b|TFLITE_BUILTINS_INT8")
# Training with quantization leaves the ranges in the model.
_TRAINED = re.compile(r"tfmot|tensorflow_model_optimization|quantize_(?:model|apply|scope)")
_MAX_LINES = 15


@dataclass
class _Conversion:
    """The settings of one converter, from its creation to `convert()`."""

    start: ast.stmt
    settings: dict[str, ast.Assign] = field(default_factory=dict)
    end: ast.stmt | None = None


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    if _TRAINED.search(document.text):
        return
    for conversion in _conversions(code):
        settings = conversion.settings
        if "representative_dataset" in settings:
            continue
        evidence = _stated_type(settings) or _stated_goal(document, conversion)
        place = settings.get("optimizations") or next(iter(settings.values()), None)
        if evidence is None or place is None:
            continue
        message = (
            f"without representative_dataset this converter quantizes the weights only, though {evidence}: set it, and "
            "supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]"
        )
        yield Problem(code.span(place), message)


def _conversions(code: Code) -> list[_Conversion]:
    """Return the conversions of a document: a converter's name is often used again."""
    conversions: list[_Conversion] = []
    current: dict[str, _Conversion] = {}
    nodes: list[ast.Assign | ast.Call] = [*code.nodes(ast.Assign)]
    nodes += [call for call in code.nodes(ast.Call) if _is_convert(call)]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Attribute)  # noqa: S101  by _is_convert
            name = code.name(node.func.value) or ""
            if name in current:
                current.pop(name).end = code.statement(node)
            continue
        target = node.targets[0]
        if "TFLiteConverter" in code.call_name(node.value) and (name := code.name(target) or ""):
            current[name] = _Conversion(node)
            conversions.append(current[name])
        elif isinstance(target, ast.Attribute):
            path = code.name(target) or ""
            name = next((item for item in current if path.startswith(f"{item}.")), "")
            if name:
                current[name].settings[target.attr] = node
    return conversions


def _is_convert(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "convert" and not call.args


def _stated_type(settings: dict[str, ast.Assign]) -> str | None:
    """Return what asks for integers in the settings themselves."""
    for name in ("inference_input_type", "inference_output_type", "supported_ops", "supported_types"):
        if name in settings and _INTEGER_TYPE.search(ast.unparse(settings[name].value)):
            return f"{name} asks for int8"
    return None


def _stated_goal(document: Document, conversion: _Conversion) -> str | None:
    """Return what the names, comments and the text in front of the code say that the result is."""
    settings, code = conversion.settings, document.code
    if "optimizations" not in settings or "supported_types" in settings:
        return None
    first = code.span(conversion.start)
    last = code.span(conversion.end or settings["optimizations"])
    lines = [line for line in document.lines if line.span.cell == first.cell]
    inside = [line.text for line in lines if first.line <= line.span.line <= last.end_line + 1]
    if any(_OTHER.search(text) for text in inside):
        return None
    if any(_INTEGER.search(text) for text in inside):
        return "it is called integer or int8 here"
    texts = list(_text_before(document, lines, first))
    # A heading says more than a sentence that compares.
    for text in sorted(texts, key=lambda text: not text.lstrip("> ").startswith("#")):
        if _OTHER.search(text):
            return None
        if _INTEGER.search(text):
            return "the text calls it integer or int8"
    return None


def _text_before(document: Document, lines: Sequence[Line], first: Span) -> Iterator[str]:
    """Yield the prose and comments in front of a conversion, the nearest first, up to a heading or other code."""
    before = [line.text for line in lines if line.span.line < first.line]
    in_code = True
    for text in list(reversed(before))[:_MAX_LINES]:
        stripped = text.strip()
        if stripped.startswith(("```", "~~~")):
            if not in_code:
                return  # the fence before
            in_code = False
        elif not in_code or stripped.startswith(("#", "def ")):
            yield stripped
            is_heading = not in_code and stripped.startswith("#")
            if is_heading or stripped.startswith("def "):
                return
        elif "return" in stripped or ".convert(" in stripped:
            return
    if first.cell is not None:
        for cell in (first.cell - 1, first.cell - 2):
            source = document.sources.get(cell)
            if source is not None and not _looks_like_code(source):
                yield from reversed(source.splitlines()[-_MAX_LINES:])
                return


def _looks_like_code(source: str) -> bool:
    return re.search(r"^(?:import |from \w+ import|\w+\s*=|\w+\(|!|%)", source, re.MULTILINE) is not None


TFLITE_NOT_FULL_INTEGER = Rule(
    "tflite-not-full-integer",
    RuleFamily.KERAS,
    "A conversion called full integer quantizes only the weights",
    _check,
    triggers=("TFLiteConverter",),
)
