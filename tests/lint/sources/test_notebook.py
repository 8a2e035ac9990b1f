from __future__ import annotations

import json

import pytest

from oomph.errors import InvalidFile
from oomph.lint.sources import DocumentKind, document_kind, parse_document, replace_cells
from oomph.lint.sources._notebook import read_cells


def notebook(*sources: object, **extra: object) -> dict[str, object]:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in sources]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **extra}


def test_cells_of_format_4() -> None:
    content = notebook(["a = 1\n", "b = 2"], "c = 3")
    assert read_cells(json.dumps(content)) == {0: ("code", "a = 1\nb = 2"), 1: ("code", "c = 3")}


def test_cells_of_format_3() -> None:
    code = {"cell_type": "code", "input": ["a = 1\n"], "language": "python"}
    text = {"cell_type": "markdown", "source": ["# title"]}
    content = {"worksheets": [{"cells": [code]}, {"cells": [text]}], "nbformat": 3}
    dumped = json.dumps(content)
    assert document_kind("standard input", dumped) is DocumentKind.NOTEBOOK
    assert read_cells(dumped) == {0: ("code", "a = 1\n"), 1: ("markdown", "# title")}
    changed = json.loads(replace_cells(dumped, {0: "a = 2\nb = 3\n"}))
    assert changed["worksheets"][0]["cells"][0]["input"] == ["a = 2\n", "b = 3\n"]
    assert changed["worksheets"][1] == {"cells": [text]}


@pytest.mark.parametrize(
    "text", ["", "   \n", "{", "[]", "null", "{}", '{"cells": 3}', "{" * 5000, '{"cells": {"a": 1}}']
)
def test_damaged_notebooks_are_reported(text: str) -> None:
    with pytest.raises(InvalidFile):
        parse_document("a.ipynb", text, DocumentKind.NOTEBOOK)


@pytest.mark.parametrize("source", [None, 3, {"a": 1}, [None, 1, "x = 1"], True])
def test_damaged_cells_are_empty(source: object) -> None:
    document = parse_document("a.ipynb", json.dumps(notebook(source)), DocumentKind.NOTEBOOK)
    assert document.sources[0] in {"", "x = 1"}


def test_cells_that_are_no_objects_keep_the_index_of_others() -> None:
    content = notebook("a = 1")
    content["cells"] = [None, "x", *content["cells"]]  # type: ignore[misc]
    assert read_cells(json.dumps(content)) == {2: ("code", "a = 1")}


@pytest.mark.parametrize("indent", [None, 1, 2, 4])
@pytest.mark.parametrize("is_escaped", [True, False])
def test_only_the_changed_cell_differs(indent: int | None, *, is_escaped: bool) -> None:
    content = notebook(["é = 1\n"], "b = 2", metadata={"name": "日本"})
    text = json.dumps(content, indent=indent, ensure_ascii=is_escaped) + "\n"
    assert replace_cells(text, {1: "b = 2"}) == text
    changed = replace_cells(text, {1: "b = 3"})
    assert changed == text.replace("b = 2", "b = 3")


@pytest.mark.parametrize(
    ("first", "has_code"),
    [
        ("%%time", True), ("%%capture out", True), ("%%writefile train.py", True), ("%%html", False),
        ("%%writefile notes.txt", False), ("%%javascript", False), ("\n%%bash", False),
    ],
)  # fmt: skip
def test_magics_choose_the_language_of_a_cell(first: str, *, has_code: bool) -> None:
    document = parse_document("a.ipynb", json.dumps(notebook(f"{first}\nx = 1")), DocumentKind.NOTEBOOK)
    assert ("x" in {name for _, name in document.code._assignments}) is has_code
