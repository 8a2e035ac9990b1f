from __future__ import annotations

import os
from pathlib import Path

import pytest

from oomph.errors import InvalidFile, MissingFile
from oomph.lint import lint_paths, lint_text
from oomph.lint.sources import DocumentKind, document_kind, find_files, read_source, split_lines

WRONG = 'import torch\nwith torch.cuda.amp.autocast():\n    print("é")\n'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-bom", "utf-16-be-bom"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.py"
    if encoding.endswith("-bom"):
        path.write_bytes(("\ufeff" + WRONG).encode(encoding.removesuffix("-bom")))
    else:
        path.write_text(WRONG, encoding=encoding)
    (diagnostic,) = lint_paths([path]).diagnostics
    assert (diagnostic.problem.span.line, diagnostic.problem.span.column) == (2, 5)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_survive_a_fix(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(WRONG.replace("\n", end).encode())
    result = lint_paths([path], fix=True)
    assert result.fixed == {str(path): 1}
    fixed = WRONG.replace("torch.cuda.amp.autocast()", 'torch.amp.autocast("cuda")')
    assert path.read_bytes() == fixed.replace("\n", end).encode()


def test_mark_of_byte_order_in_a_pipe() -> None:
    (diagnostic,) = lint_text("\ufefffrom torch.cuda.amp import autocast; autocast()\n", "a.py").diagnostics
    assert diagnostic.problem.span.column == 38


def test_form_feeds_and_separators_end_no_line() -> None:
    text = 'x = "a\x0cb\x1c\u2028\x85"\n\x0cimport torch\ntorch.cuda.amp.autocast()\n'
    (diagnostic,) = lint_text(text, "a.py").diagnostics
    assert diagnostic.problem.span.line == 3
    assert split_lines("a\x0cb\r\nc\rd\u2028e\n") == ["a\x0cb\r\n", "c\r", "d\u2028e\n"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import torch", DocumentKind.PYTHON),
        ("#!/bin/sh\nls", DocumentKind.SHELL),
        ("$ nvidia-smi", DocumentKind.SHELL),
        ("text\n```python\nx = 1\n```", DocumentKind.MARKDOWN),
        ('{"cells": [], "nbformat": 4}', DocumentKind.NOTEBOOK),
        ("{'a': 1}", DocumentKind.PYTHON),
        ("", DocumentKind.PYTHON),
    ],
)
def test_kind_of_a_pipe(text: str, kind: DocumentKind) -> None:
    assert document_kind("standard input", text) is kind


def test_binaries_and_pipes_are_no_source(tmp_path: Path) -> None:
    binary = tmp_path / "a.py"
    binary.write_bytes(b"import torch\0\x01\x02")
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    for path in (binary, pipe):
        with pytest.raises(InvalidFile):
            read_source(path)
    assert set(lint_paths([tmp_path]).skipped) == {str(binary), str(pipe)}


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        list(find_files([tmp_path / "none"]))


def test_folders_of_others_are_left_out(tmp_path: Path) -> None:
    for name in ("a.py", "b.txt", ".hidden/c.py", "node_modules/d.py", "sub/e.ipynb", "sub/f.MD"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [str(path.relative_to(tmp_path)) for path in find_files([tmp_path])] == ["a.py", "sub/e.ipynb", "sub/f.MD"]
