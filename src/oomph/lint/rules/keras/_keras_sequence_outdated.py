"""Rule `keras-sequence-outdated`: arguments and methods that Keras 3 removed from the model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..._problem import Problem
from ..._rule import Rule, RuleFamily
from ...sources import Document

_METHODS = {"fit", "predict", "evaluate"}
_GENERATOR_METHODS = {"fit_generator": "fit", "predict_generator": "predict", "evaluate_generator": "evaluate"}
_MOVED = {"workers", "use_multiprocessing", "max_queue_size"}
_KERAS = re.compile(r"keras|tensorflow|\btf\.", re.IGNORECASE)
# Where Keras 2 is meant, the arguments are right.
_KERAS_2_PARTS = (
    r"tf[-_]keras|TF_USE_LEGACY_KERAS|keras\s*(?:==|<|<=|~=)\s*2|keras\s*<\s*3|tensorflow(?:-gpu)?\s*(?:==|<=|<|~=)\s*",
    r"(?:1\.|2\.(?:\d|1[0-5])(?:\D|$))",
)
_KERAS_2 = re.compile(
    "".join(_KERAS_2_PARTS),
    re.IGNORECASE,
)


def _check(document: Document) -> Iterator[Problem]:
    code = document.code
    if _KERAS_2.search(document.text):
        return
    is_keras = _KERAS.search(document.text) is not None
    for call in code.nodes(ast.Call):
        func = call.func
        if not isinstance(func, ast.Attribute):
            continue
        if func.attr in _GENERATOR_METHODS:
            name = _GENERATOR_METHODS[func.attr]
            message = f"Keras 3 has no {func.attr}(): write {name}(), and give workers to the PyDataset"
            yield Problem(code.span(call), message)
        elif func.attr in _METHODS:
            moved = [keyword for keyword in call.keywords if keyword.arg in _MOVED]
            if moved and (is_keras or {keyword.arg for keyword in moved} - {"workers"}):
                names = ", ".join(str(keyword.arg) for keyword in moved)
                message = (
                    f"{func.attr}() of Keras 3 has no argument {names}: the PyDataset takes it, through its "
                    "super().__init__(**kwargs)"
                )
                yield Problem(code.span(moved[0]), message)


KERAS_SEQUENCE_OUTDATED = Rule(
    "keras-sequence-outdated",
    RuleFamily.KERAS,
    "Arguments of fit() that Keras 3 takes in the PyDataset",
    _check,
    triggers=(*_MOVED, *_GENERATOR_METHODS),
)
