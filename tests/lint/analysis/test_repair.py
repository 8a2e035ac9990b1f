from __future__ import annotations

import ast

import pytest

from oomph.lint._piece import PieceLine
from oomph.lint.analysis._repair import parse_lines


def parsed(text: str) -> tuple[str, list[PieceLine]] | None:
    lines = [PieceLine(line, number) for number, line in enumerate(text.split("\n"), 1)]
    result = parse_lines(lines)
    if result is None:
        return None
    tree, repaired = result
    assert [line.line for line in repaired] == [line.line for line in lines]
    return ast.unparse(tree), repaired


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("%matplotlib inline\n!pip install \\\n   torch\nimport torch", "pass\npass\nimport torch"),
        ("files = !ls\ntorch.zeros?", "files = None\npass"),
        ("trainer = Trainer(model=model, ...)", "trainer = Trainer(model=model, **_)"),
        ("def forward(self, x, ...):\n    return x", "def forward(self, x, **_):\n    return x"),
        ("for x in loader:\n    # train\nprint(1)", "for x in loader:\n    pass\nprint(1)"),
        ("while True:\n    # forever", "while True:\n    pass"),
        (
            "Python 3.10\n>>> for i in x:\n...     f(i)\n...\n5",
            "for i in x:\n    f(i)",
        ),
        (
            "In [2]: for a in b:\n   ...:     c(a)\n   ...: \nOut[2]: 5",
            "for a in b:\n    c(a)",
        ),
        ("    loss.backward()\n    optimizer.step()", "loss.backward()\noptimizer.step()"),
        ("        loss.backward()\n    step()", "loss.backward()\nstep()"),
        ("print 'a'\nloss.backward()", "pass\nloss.backward()"),
        (
            "try:\n    x()\nexcept ValueError, e:\n    y()",
            "try:\n    x()\nexcept ValueError as e:\n    y()",
        ),
        ("for x in loader\n    loss.backward()", "for x in loader:\n    loss.backward()"),
        ("else:\n    x = 1", "if 1:\n    x = 1"),
        ("try:\n    loss.backward()", "if 1:\n    loss.backward()"),
        ("print(\u201ca\u201d)\nx = \u2018b\u2019", "print('a')\nx = 'b'"),
        ("for x in y:\n\tloss.backward()\n    step()", "for x in y:\n    loss.backward()\n    step()"),
        ("<div>\nimport torch\n</div>", "pass\nimport torch\npass"),
        ("import a\0b\nx = 1", "pass\nx = 1"),
    ],
)
def test_code_survives_what_is_no_python(text: str, code: str) -> None:
    result = parsed(text)
    assert result is not None
    assert result[0] == code


def test_unclosed_bracket_loses_no_loop_below_it() -> None:
    result = parsed("model = Model(\n    a=1,\n\nfor x in y:\n    loss.backward()")
    assert result is not None
    assert "for x in y:\n    loss.backward()" in result[0]


def test_tabs_beside_spaces_keep_their_columns() -> None:
    result = parsed("if a:\n    b()\nif c:\n\td()\n        e()")
    assert result is not None
    line = result[1][3]
    assert line.text.lstrip() == "d()"
    assert line.column + line.text.index("d") == 1  # its column in the file


def test_damaged_function_costs_only_itself_in_a_long_file() -> None:
    functions = [f"def f{number}(x):\n    return x + {number}\n" for number in range(400)]
    functions[7] = "def f7(x):\n    return ((x\n"
    functions[90] = "def f90(x):\n    retrun x y z\n"
    functions[300] = "cmake_minimum_required VERSION 3.10\n"
    result = parsed("\n".join(functions))
    assert result is not None
    names = {node.name for node in ast.parse(result[0]).body if isinstance(node, ast.FunctionDef)}
    assert len(names) >= 397


def test_nesting_that_the_parser_refuses_is_left_out() -> None:
    result = parsed("x = " + "(" * 10_000 + ")" * 10_000 + "\nloss.backward()")
    assert result is None or result[0].endswith("loss.backward()")
