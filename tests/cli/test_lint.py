from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomph.cli import run

WRONG = """\
import torch

total = 0
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(WRONG)
    return path


def test_mistakes_are_printed_with_their_place_and_exit_code_1(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["lint", str(script)]) == 1
    first, summary = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{script}:9:5: loss-keeps-graph `total += loss` ")
    assert summary == "1 mistake in 1 file, 9 lines. --fix corrects 1."


def test_right_code_exits_with_0(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(WRONG.replace("+= loss", "+= loss.item()"))
    assert run(["lint", str(script)]) == 0
    assert capsys.readouterr().out == "No mistakes found in 1 file, 9 lines.\n"


def test_fix_corrects_in_place_and_keeps_mode_and_line_ends(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_bytes(b"\xef\xbb\xbf" + WRONG.replace("\n", "\r\n").encode())
    script.chmod(0o755)
    assert run(["lint", "--fix", str(script)]) == 0
    assert capsys.readouterr().out == "Fixed 1 mistake. No mistakes found in 1 file, 9 lines.\n"
    fixed = WRONG.replace("+= loss", "+= loss.detach()").replace("\n", "\r\n").encode()
    assert script.read_bytes() == b"\xef\xbb\xbf" + fixed
    assert script.stat().st_mode & 0o777 == 0o755


def test_fix_leaves_a_file_alone_whose_bytes_are_no_utf8(script: Path) -> None:
    content = b"# caf\xe9\n" + WRONG.encode()
    script.write_bytes(content)
    assert run(["lint", "--fix", str(script)]) == 1
    assert script.read_bytes() == content


def test_fix_follows_a_link(script: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(script)
    assert run(["lint", "--fix", str(link)]) == 0
    assert link.is_symlink()
    assert "loss.detach()" in script.read_text()


def test_fix_of_a_notebook_changes_only_its_cell(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "code", "metadata": {}, "source": ["%matplotlib inline\n", "import torch"], "outputs": []},
        {"cell_type": "code", "metadata": {"id": "x"}, "source": WRONG.splitlines(keepends=True), "outputs": []},
    ]
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "metadata": {"é": 1}}, indent=1, ensure_ascii=False))
    before = path.read_text()
    assert run(["lint", "--fix", str(path)]) == 0
    assert path.read_text() == before.replace("+= loss\\n", "+= loss.detach()\\n")


def test_json_has_every_diagnostic(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "--json", str(script)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["oomph"], document["files"], document["lines"]) == ("lint", 1, 9)
    (diagnostic,) = document["diagnostics"]
    assert (diagnostic["rule"], diagnostic["line"], diagnostic["column"]) == ("loss-keeps-graph", 9, 5)
    assert (diagnostic["end_line"], diagnostic["end_column"], diagnostic["fixable"]) == (9, 18, True)


def test_sarif_names_rule_and_region(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "--sarif", str(script)]) == 1
    (sarif,) = json.loads(capsys.readouterr().out)["runs"]
    (result,) = sarif["results"]
    rule = sarif["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert rule["id"] == result["ruleId"] == "loss-keeps-graph"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == script.as_uri()
    assert place["region"] == {"startLine": 9, "startColumn": 5, "endLine": 9, "endColumn": 18}


def test_standard_input_is_read(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(WRONG.encode())))
    assert run(["lint", "-", "--stdin-name", "train.py"]) == 1
    assert capsys.readouterr().out.startswith("train.py:9:5: loss-keeps-graph")


LATIN = b"# caf\xe9\n" + WRONG.encode()


@pytest.mark.parametrize(
    ("arguments", "data", "message"),
    [
        (["--json"], WRONG.encode(), "writes the corrected text to standard output"),
        (["--sarif"], WRONG.encode(), "writes the corrected text to standard output"),
        ([], LATIN, "is not UTF-8"),
    ],
    ids=["json", "sarif", "latin-1"],
)
def test_a_pipe_that_can_not_be_fixed_is_an_error(
    arguments: list[str], data: bytes, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert run(["lint", "-", "--fix", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "detach" not in captured.out


def test_a_file_that_is_not_utf_8_stays_and_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_bytes(LATIN)
    assert run(["lint", "--fix", str(tmp_path)]) == 1
    assert "train.py: not fixed: its text is not UTF-8" in capsys.readouterr().out
    assert (tmp_path / "train.py").read_bytes() == LATIN


@pytest.mark.medium
def test_pipe_is_fixed_without_torch(script: Path) -> None:
    program = (
        "import sys, oomph.cli; code = oomph.cli.run(sys.argv[1:]); sys.exit(9 if 'torch' in sys.modules else code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "lint", "--fix", "-"],
        input=script.read_bytes(),
        capture_output=True,
        env={**os.environ, "COLUMNS": "40"},
        check=True,
    )
    assert done.stdout.decode() == WRONG.replace("+= loss", "+= loss.detach()")


@pytest.mark.parametrize(
    "comment", ["# oomph: ignore", "# oomph: ignore[loss-keeps-graph]", "# oomph: ignore[a, loss-keeps-graph]"]
)
def test_comment_switches_a_rule_off(script: Path, comment: str) -> None:
    script.write_text(WRONG.replace("total += loss\n", f"total += loss  {comment}\n"))
    assert run(["lint", str(script)]) == 0
    script.write_text(WRONG.replace("total += loss\n", "total += loss  # oomph: ignore[deprecated-amp]\n"))
    assert run(["lint", str(script)]) == 1
    script.write_text("# oomph: ignore-file[loss-keeps-graph]\n" + WRONG)
    assert run(["lint", str(script)]) == 0


def test_folder_is_searched_without_hidden_and_installed_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (".git", "venv/lib", "src", "node_modules"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "train.py").write_text(WRONG)
    (tmp_path / "notes.txt").write_text(WRONG)
    (tmp_path / "README.md").write_text(f"# Train\n\n```python\n{WRONG}```\n")
    assert run(["lint", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == [
        str(tmp_path / "README.md"),
        str(tmp_path / "src" / "train.py"),
    ]
    assert lines[0].startswith(f"{tmp_path / 'README.md'}:12:5: ")


def test_select_and_ignore_choose_rules(script: Path) -> None:
    assert run(["lint", "--select", "deprecated-amp", str(script)]) == 0
    assert run(["lint", "--ignore", "loss-keeps-graph", str(script)]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no file was given"),
        (["missing.py"], "there is no file or folder 'missing.py'"),
        (["--select", "loss-keeps-graphs", "."], "did you mean loss-keeps-graph?"),
        (["--ignore", "x", "."], "oomph lint --rules lists all of them"),
        (["--json", "--sarif", "."], "choose one"),
        (["-", "."], "check standard input alone"),
        (["--budget", "much", "."], "much"),
    ],
)
def test_bad_input_gets_one_sentence(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_files_that_cannot_be_checked_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary.py").write_bytes(b"\0\1\2")
    (tmp_path / "damaged.ipynb").write_text('{"cells": ["loss.backward()"')
    assert run(["lint", str(tmp_path)]) == 2
    output = capsys.readouterr().out
    assert "binary.py: not checked: it is a binary file" in output
    assert "damaged.ipynb: not checked: it is no notebook" in output


def test_rules_are_listed_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "--rules"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "accumulation"
    assert any(line.split()[0] == "loss-keeps-graph" and line.endswith("--fix") for line in lines)
    assert run(["lint", "--rules", "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert {"name", "family", "title", "fixable"} == rules[0].keys()


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("a.py", "this is not python at all !!!\n", "checked in part: line 1 is no Python (invalid syntax)"),
        ("a.ipynb", '{"cells": 3', "not checked: it is no notebook: its JSON is damaged"),
    ],
)
def test_what_can_not_be_read_is_named(
    name: str, text: str, note: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    run(["lint", str(tmp_path)])
    assert f"{tmp_path / name}: {note}" in capsys.readouterr().out


def test_exports_of_notebooks_and_warnings_are_no_syntax_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("!pip install torch\nimport torch\n")
    (tmp_path / "b.py").write_text("PATTERN = '\\d'\n")
    assert run(["lint", str(tmp_path)]) == 0
    assert capsys.readouterr() == ("No mistakes found in 2 files, 3 lines.\n", "")


def test_a_folder_without_code_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", str(tmp_path)]) == 2
    assert "there is nothing to check" in capsys.readouterr().err
