from __future__ import annotations

import pytest

from oomph.lint._piece import Language
from oomph.lint.sources._markdown import markdown_pieces

PYTHON, SHELL = Language.PYTHON, Language.SHELL


def pieces(text: str) -> list[tuple[Language, list[tuple[str, int, int]]]]:
    return [
        (piece.language, [(line.text, line.line, line.column) for line in piece.lines])
        for piece in markdown_pieces(text.split("\n"))
    ]


@pytest.mark.parametrize(
    "opening",
    [
        "```python", "```py", "~~~python", "```Python", "``` python", "```{.python .numberLines}", "```{python}",
        '```python title="train.py" hl_lines="2"', "```python{1,3}", "```{code-block} python",
        "```{code-cell} ipython3", "````python", "```python:train.py", "```pycon", "```",
    ],
)  # fmt: skip
def test_python_fences(opening: str) -> None:
    closing = opening[: len(opening) - len(opening.lstrip("`~"))]
    assert pieces(f"text\n{opening}\nx = 1\n{closing}\nx is prose") == [(PYTHON, [("x = 1", 3, 0)])]


@pytest.mark.parametrize("opening", ["```bash", "```console", "```sh", "~~~ shell", "```powershell", "```"])
def test_shell_fences(opening: str) -> None:
    closing = opening[:3]
    assert pieces(f"{opening}\n$ nvidia-smi\n{closing}") == [(SHELL, [("$ nvidia-smi", 2, 0)])]


@pytest.mark.parametrize("opening", ["```text", "```yaml", "```cpp", "```diff", "```json"])
def test_other_languages_are_no_code(opening: str) -> None:
    assert pieces(f"{opening}\nimport torch\n```") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. ```python\n   x = 1\n   ```", [("x = 1", 2, 3)]),
        ("- item\n\n  ```python\n  for x in y:\n      f(x)\n  ```", [("for x in y:", 4, 2), ("    f(x)", 5, 2)]),
        ("> ```python\n> x = 1\n> ```", [("x = 1", 2, 2)]),
        ("> ```python\n> x = 1\n\ntext", [("x = 1", 2, 2)]),
        ("> > ```python\n> > x = 1\n> > ```", [("x = 1", 2, 4)]),
        ("````markdown\n```python\nx = 1\n```\n````", [("x = 1", 3, 0)]),
        ("```python\nx = 1", [("x = 1", 2, 0)]),
        ("text\n\n    import os\n\n    x = 1\n\ntext", [("import os", 3, 4), ("", 4, 0), ("x = 1", 5, 4)]),
        ('<pre><code class="language-python">x = 1\n</code></pre>', [("x = 1", 1, 35), ("", 2, 0)]),
        ("<pre lang='python'>\nx = 1</pre>", [("", 1, 19), ("x = 1", 2, 0)]),
    ],
)
def test_code_has_its_place_in_the_file(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert pieces(text) == [(PYTHON, expected)]


def test_longer_fence_contains_shorter_ones() -> None:
    assert pieces("````python\nx = '''\n```\n'''\n````") == [
        (PYTHON, [("x = '''", 2, 0), ("```", 3, 0), ("'''", 4, 0)])
    ]


def test_entities_keep_the_columns_behind_them() -> None:
    source = "<pre>if a &lt;= b and c == &quot;x&quot;: f(a)\ndef g() -&gt; int: pass</pre>"
    ((_, lines),) = pieces(source)
    assert [line[0].replace(" ", "") for line in lines] == ['ifa<=bandc=="x":f(a)', "defg()->int:pass"]
    text, _, column = lines[0]
    assert source[column + text.index("f(a)") :].startswith("f(a)")


def test_list_text_is_no_indented_code() -> None:
    assert pieces("- item\n\n    more = text of the item\n\n1. step\n\n    x = 1") == []


def test_inline_code_opens_no_fence() -> None:
    assert pieces("```pip install oomph``` does it\nimport torch is prose") == []


def test_many_unclosed_elements_take_linear_time() -> None:
    assert pieces("\n".join(["<pre>"] * 50_000)) == []
