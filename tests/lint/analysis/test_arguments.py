from __future__ import annotations

import ast

from oomph.lint.analysis import Code, default_value, passed_values
from oomph.lint.sources import DocumentKind, parse_document


def test_values_of_all_calls() -> None:
    code = _code("def f(a, b=2):\n    pass\nf(1, x)\nf(1, b=y)")
    assert _sources(code, "b") == ["x", "y"]


def test_methods_leave_self_out() -> None:
    code = _code("class A:\n    def f(self, loss):\n        pass\n    def g(self):\n        self.f(first)")
    assert _sources(code, "loss") == ["first"]


def test_starred_argument_makes_all_unclear() -> None:
    code = _code("def f(a, b):\n    pass\nf(1, x)\nf(*both)")
    assert _sources(code, "b") == []


def test_defaults_of_positional_and_keyword_parameters() -> None:
    function = _code("def f(a, b=2, *, c, d=4):\n    pass").functions[0]
    values = {name: default_value(function, name) for name in "abcd"}
    constants = {name: value.value for name, value in values.items() if isinstance(value, ast.Constant)}
    assert constants == {"b": 2, "d": 4}


def _code(source: str) -> Code:
    return parse_document("code.py", source, DocumentKind.PYTHON).code


def _sources(code: Code, parameter: str) -> list[str]:
    return [ast.unparse(value) for value in passed_values(code, code.functions[0], parameter)]
