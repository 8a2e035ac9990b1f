from __future__ import annotations

import ast

import pytest

from oomph.lint.sources import Document, DocumentKind, parse_document


def document(text: str) -> Document:
    return parse_document("train.sh", text, DocumentKind.SHELL)


@pytest.mark.parametrize(
    "text",
    [
        "python - <<'EOF'\nloss.backward()\nEOF\nls\n",
        "python3 <<EOF\nloss.backward()\nEOF\nls\n",
        'CUDA_VISIBLE_DEVICES=0 python -u - <<"PY" --arg\nloss.backward()\nPY\nls\n',
        "cat > train.py <<'EOF'\nloss.backward()\nEOF\nls\n",
        'python -c "\nloss.backward()\n"\nls\n',
        "python3 -W ignore -c '\nloss.backward()\n'\nls\n",
    ],
)
def test_python_in_a_script_is_code(text: str) -> None:
    parsed = document(text)
    (call,) = parsed.code.nodes(ast.Call)
    span = parsed.code.span(call)
    assert (span.line, span.column) == (2, 0)
    assert parsed.commands[-1].text == "ls"
    assert not any("backward" in command.text for command in parsed.commands)


def test_code_on_the_line_of_the_command() -> None:
    text = "set -e\npython -c 'import torch; print(torch.ones(3))' | tee log"
    parsed = document(text)
    span = parsed.code.span(parsed.code.nodes(ast.Call)[0])
    assert text.split("\n")[1][span.column :].startswith("print(")


@pytest.mark.parametrize(
    "text",
    [
        "cat <<EOF\nloss.backward()\nEOF\n",
        'python -c "print(\\"$x\\")"\n',
        "python <<< 'loss.backward()'\n",
        'python -c "never closed\nls\n',
        "cat > notes.md <<EOF\nloss.backward()\nEOF\n",
    ],
)
def test_other_texts_are_no_code(text: str) -> None:
    assert document(text).code.nodes(ast.Call) == []
