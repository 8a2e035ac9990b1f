from __future__ import annotations

import ast

import pytest

from oomph.lint.analysis import Code, are_exclusive, is_conditional
from oomph.lint.sources import DocumentKind, parse_document


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if c:\n    first()\nelse:\n    second()", True),
        ("if c:\n    first()\nelif d:\n    second()", True),
        ("if c:\n    first()\nsecond()", False),
        ("if c:\n    first()\nif c:\n    second()", False),
        ("for x in y:\n    if c:\n        first()\n        continue\n    second()", True),
        ("def f():\n    if c:\n        if d:\n            first()\n            return\n    second()", True),
        ("for x in y:\n    if c:\n        first()\n        continue\nsecond()", False),
        ("if c:\n    first()\n    second()", False),
    ],
)
def test_exclusive_branches(source: str, *, expected: bool) -> None:
    code = _code(source)
    first, second = _call(code, "first"), _call(code, "second")
    assert are_exclusive(code, first, second) is expected
    assert are_exclusive(code, second, first) is expected


def test_condition_of_the_region_itself_does_not_count() -> None:
    code = _code("if c:\n    for x in y:\n        first()\n        if d:\n            second()")
    loop = code.loops[0]
    assert not is_conditional(code, _call(code, "first"), loop)
    assert is_conditional(code, _call(code, "second"), loop)


def test_call_in_a_test_is_not_conditional() -> None:
    code = _code("for x in y:\n    if first():\n        second()")
    assert not is_conditional(code, _call(code, "first"), code.loops[0])


def _code(source: str) -> Code:
    return parse_document("code.py", source, DocumentKind.PYTHON).code


def _call(code: Code, name: str) -> ast.Call:
    return next(call for call in code.nodes(ast.Call) if code.name(call.func) == name)
